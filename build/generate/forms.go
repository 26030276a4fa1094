package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// clouds matches the line of an issue form that lists the clouds.
var clouds = regexp.MustCompile(`(?m)^    options: \[.*, another\]$`)

// forms writes the list of clouds into the issue forms.
func (w *writer) forms(providers []registry.Provider) {
	var titles []string
	for _, p := range providers {
		titles = append(titles, p.Title)
	}
	slices.Sort(titles)
	for form, first := range map[string]string{"bug.yml": "", "feature.yml": "all of them, "} {
		path := ".github/ISSUE_TEMPLATE/" + form
		text, err := w.read(path, "")
		if err == nil && len(clouds.FindAll(text, -1)) != 1 {
			err = errors.New("it needs one list of clouds that ends in \", another\"")
		}
		w.add(path, clouds.ReplaceAllLiteral(text, []byte("    options: ["+first+strings.Join(titles, ", ")+", another]")), err)
	}
}
