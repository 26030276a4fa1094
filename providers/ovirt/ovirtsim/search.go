package ovirtsim

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// search is a query in the engine's language.
type search struct {
	// alternatives are joined by "or", the terms of each by "and".
	alternatives [][]term
	sorted       bool
	page         int
}

type term struct {
	field, value  string
	not, sensible bool
}

var word = regexp.MustCompile(`"[^"]*"|!=|<=|>=|[=<>]|[^\s=<>!"]+`)

// fields are those that the simulated engine knows; any other is refused.
func fields() []string {
	return []string{"name", "fqdn", "id", "tag", "cluster", "datacenter", "status", "ip"}
}

// parseSearch reads a query; "" finds everything.
func parseSearch(query string, sensitive bool) (s search, err error) {
	tokens := word.FindAllString(query, -1)
	next := func() string {
		if len(tokens) == 0 {
			return ""
		}
		t := tokens[0]
		tokens = tokens[1:]
		return t
	}
	s.alternatives = [][]term{nil}
	for len(tokens) > 0 {
		switch first := next(); strings.ToLower(first) {
		case "and":
		case "or":
			s.alternatives = append(s.alternatives, nil)
		case "sortby":
			next()
			s.sorted = true
			if len(tokens) > 0 && slices.Contains([]string{"asc", "desc"}, strings.ToLower(tokens[0])) {
				next()
			}
		case "page":
			if s.page, err = strconv.Atoi(next()); err != nil {
				return s, fmt.Errorf("The search %q is not legal: page", query) //nolint:staticcheck // the engine's form
			}
		default:
			field, op, value := strings.ToLower(first), next(), strings.Trim(next(), `"`)
			if !slices.Contains(fields(), field) || (op != "=" && op != "!=") || (field == "tag" && op != "=") {
				return s, fmt.Errorf("The search %q is not legal: %s %s", query, field, op) //nolint:staticcheck // as above
			}
			last := len(s.alternatives) - 1
			s.alternatives[last] = append(s.alternatives[last], term{field: field, value: value, not: op == "!=", sensible: sensitive})
		}
	}
	return s, nil
}

func (s search) matches(sim *Sim, v *VM) bool {
	return slices.ContainsFunc(s.alternatives, func(terms []term) bool {
		return !slices.ContainsFunc(terms, func(t term) bool { return t.matches(sim, v) == t.not })
	})
}

// values are those of a virtual machine's field.
func (t term) values(sim *Sim, v *VM) []string {
	switch t.field {
	case "name":
		return []string{v.Name}
	case "fqdn":
		return []string{v.FQDN}
	case "id":
		return []string{v.ID}
	case "status":
		return []string{v.Status}
	case "tag":
		return v.Tags
	case "cluster", "datacenter":
		return sim.placesOf(v, t.field)
	}
	var all []string
	for _, d := range v.Devices {
		all = append(all, d.IPs...)
	}
	return all
}

// placesOf are the names of the cluster of a virtual machine, or of its data center.
func (s *Sim) placesOf(v *VM, field string) (names []string) {
	for _, c := range s.clusters {
		if c.ID != v.Cluster {
			continue
		}
		if field == "cluster" {
			names = append(names, c.Name)
		}
		for _, d := range s.dataCenters {
			if field == "datacenter" && d.ID == c.DataCenter {
				names = append(names, d.Name)
			}
		}
	}
	return names
}

func (t term) matches(sim *Sim, v *VM) bool {
	return slices.ContainsFunc(t.values(sim, v), func(value string) bool {
		pattern := t.value
		if !t.sensible {
			value, pattern = strings.ToLower(value), strings.ToLower(pattern)
		}
		ok, err := path.Match(pattern, value)
		return ok || (err != nil && value == pattern)
	})
}
