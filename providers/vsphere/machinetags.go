package vsphere

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// This file reads the tags of virtual machines, which become labels of Nodes.

const (
	// taggedMachines is how many virtual machines a call asks about; VMware advises at most 2,000.
	taggedMachines = 1000
	// tagNamesAge is how long names of tags and categories serve without being read again.
	tagNamesAge = time.Hour
)

// tagNames holds the names of tags and of their categories by the ID of the tag. One caller at a time uses it.
type tagNames struct {
	since time.Time
	known map[string]tag
}

// taggedObject is an object, in both forms that the tagging service has.
type taggedObject struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

// machineTags reads the tags of virtual machines: the category and the name of its tag. Several tags of one category are told together,
// which is no legal label.
func (a *api) machineTags(ctx context.Context, ids []string) (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	var problems []error
	for _, v := range a.vcenters {
		refs, owners := v.referencesOf(ids)
		if len(refs) == 0 {
			continue
		}
		problems = append(problems, v.do(ctx, "reading tags of virtual machines", func(ctx context.Context, s *session) error {
			for some := range slices.Chunk(refs, taggedMachines) {
				if err := s.readMachineTags(ctx, some, owners, all); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return all, errors.Join(problems...)
}

// referencesOf returns the virtual machines of instances that a vCenter has, and the instance of each. A new one may have been read alone.
func (v *vcenter) referencesOf(ids []string) (refs []taggedObject, owners map[string]string) {
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	owners = map[string]string{}
	v.known.Lock()
	defer v.known.Unlock()
	for ref, m := range v.known.machines {
		_, missing := v.known.missing[ref]
		if id := canonicalUUID(m.UUID); wanted[id] && !m.Template && !missing {
			refs, owners[ref.Value] = append(refs, taggedObject{ref.Value, ref.Type}), id
		}
	}
	slices.SortFunc(refs, func(a, b taggedObject) int { return strings.Compare(a.ID, b.ID) })
	return refs, owners
}

func (s *session) readMachineTags(
	ctx context.Context, refs []taggedObject, owners map[string]string, all map[string]map[string]string,
) error {
	var attached []struct {
		Object taggedObject `json:"object_id"`
		Tags   []string     `json:"tag_ids"`
	}
	path := "/tagging/tag-association?~action=list-attached-tags-on-objects"
	if err := s.callREST(ctx, http.MethodPost, path, map[string]any{"object_ids": refs}, &attached); err != nil {
		return err
	}
	none := map[string]bool{} // has what was asked about, until it has tags
	for _, ref := range refs {
		none[ref.ID] = true
	}
	for _, on := range attached {
		if owners[on.Object.ID] == "" {
			return unclearError("the tagging service answers about %s, which nobody asked about", on.Object.ID)
		}
		delete(none, on.Object.ID)
	}
	for ref := range none {
		all[owners[ref]] = map[string]string{}
	}
	for _, on := range attached {
		tags, err := s.tagsByCategory(ctx, on.Tags)
		if err != nil {
			return err // those whose names are not read are not told that they have none
		}
		all[owners[on.Object.ID]] = tags
	}
	return nil
}

// tagsByCategory returns the names of tags by those of their categories.
func (s *session) tagsByCategory(ctx context.Context, ids []string) (map[string]string, error) {
	names := map[string][]string{}
	for _, id := range ids {
		t, err := s.readTag(ctx, id)
		if err != nil {
			return nil, err
		}
		names[t.Category] = append(names[t.Category], t.Name)
	}
	delete(names, "") // tags that were deleted meanwhile
	tags := map[string]string{}
	for category, list := range names {
		slices.Sort(list)
		tags[category] = strings.Join(list, ", ")
	}
	return tags, nil
}

// readTag returns the name of a tag and that of its category; neither if it was deleted.
func (s *session) readTag(ctx context.Context, id string) (t tag, err error) {
	names := &s.vcenter.tagNames
	if time.Since(names.since) > tagNamesAge {
		names.since, names.known = time.Now(), map[string]tag{}
	}
	if known, ok := names.known[id]; ok {
		return known, nil
	}
	var category struct {
		Name string `json:"name"`
	}
	if err = s.callREST(ctx, http.MethodGet, "/tagging/tag/id:"+id, nil, &t); err == nil {
		err = s.callREST(ctx, http.MethodGet, "/tagging/category/id:"+t.Category, nil, &category)
	}
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return tag{}, nil
	case err != nil:
		return tag{}, err
	}
	t.Category = category.Name
	names.known[id] = t
	return t, nil
}
