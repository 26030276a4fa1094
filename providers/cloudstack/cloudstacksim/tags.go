package cloudstacksim

import (
	"slices"
	"strings"
)

// Tag is a tag of a thing.
type Tag struct {
	Kind     string `json:"kind"`
	Resource string `json:"resource"`
	Key      string `json:"key"`
	Value    string `json:"value"`
}

// tagged reports whether a thing has one of the tags that a listing asks for.
func (c *call) tagged(kind, id string) bool {
	wanted := c.p.maps("tags")
	if len(wanted) == 0 {
		return true
	}
	return slices.ContainsFunc(wanted, func(w map[string]string) bool {
		return slices.ContainsFunc(c.s.tags, func(t Tag) bool {
			return t.Kind == kind && t.Resource == id && t.Key == w["key"] && (w["value"] == "" || t.Value == w["value"])
		})
	})
}

func (s *Sim) shownTags(kind, id string) []any {
	list := []any{}
	for _, t := range s.tags {
		if t.Kind == kind && t.Resource == id {
			list = append(list, s.shownTag(t))
		}
	}
	return list
}

func (s *Sim) shownTag(t Tag) map[string]any {
	_, owner := s.taggable(t.Kind, t.Resource)
	return s.owned(map[string]any{"key": t.Key, "value": t.Value, "resourcetype": t.Kind, "resourceid": t.Resource}, owner)
}

// taggable reports whether there is a thing of a type, and who has it.
func (s *Sim) taggable(kind, id string) (found bool, owner string) {
	switch kind {
	case "UserVm":
		if v := s.vms.get(id); v != nil {
			return true, v.Owner
		}
	case "LoadBalancer":
		if r := s.rules.get(id); r != nil {
			return true, r.Owner
		}
	case "PublicIpAddress":
		if a := s.addresses.get(id); a != nil {
			return true, a.Owner
		}
	case "FirewallRule":
		if f := s.firewalls.get(id); f != nil {
			return true, f.Owner
		}
	case "NetworkACL":
		if i := s.aclItems.get(id); i != nil {
			return true, s.ownerOfList(s.aclLists.get(i.List))
		}
	case "Network":
		if n := s.networks.get(id); n != nil {
			return true, n.Owner
		}
	}
	return false, ""
}

func tagKinds() []string {
	return []string{"UserVm", "LoadBalancer", "PublicIpAddress", "FirewallRule", "NetworkACL", "Network"}
}

// resources are the things that a request about tags names.
func (c *call) resources() (kind string, ids []string, err error) {
	i := slices.IndexFunc(tagKinds(), func(k string) bool { return strings.EqualFold(k, c.p["resourcetype"]) })
	if i < 0 {
		return "", nil, refuse(codeParam, "Invalid resource type %s", c.p["resourcetype"])
	}
	kind, ids = tagKinds()[i], c.p.list("resourceids")
	for _, id := range ids {
		found, owner := c.s.taggable(kind, id)
		if !found {
			return "", nil, refuse(codeParam, "Unable to find resource by id %s and type %s", id, kind)
		}
		if err := c.s.checkOperate(c.caller, owner); err != nil {
			return "", nil, err
		}
	}
	return kind, ids, nil
}

func (c *call) createTags() (any, error) {
	s := c.s
	kind, ids, err := c.resources()
	if err != nil {
		return nil, err
	}
	pairs := c.p.maps("tags")
	for _, pair := range pairs {
		switch {
		case pair["key"] == "":
			return nil, refuse(codeParam, "The key of a tag cannot be empty")
		case pair["value"] == "":
			return nil, refuse(codeParam, "Value for the key %s is either null or empty", pair["key"])
		}
	}
	return begun(c.submit("", job{effect: func() (any, error) {
		var made []Tag
		for _, id := range ids {
			for _, pair := range pairs {
				t := Tag{Kind: kind, Resource: id, Key: pair["key"], Value: pair["value"]}
				if slices.ContainsFunc(s.tags, func(o Tag) bool { return o.Kind == kind && o.Resource == id && o.Key == t.Key }) {
					return nil, refuse(codeInternal, "tag %s already on %s with id %s", t.Key, kind, id)
				}
				made = append(made, t)
			}
		}
		s.tags = append(s.tags, made...)
		return success(), nil
	}}), ""), nil
}

func (c *call) deleteTags() (any, error) {
	s := c.s
	kind, ids, err := c.resources()
	if err != nil {
		return nil, err
	}
	pairs := c.p.maps("tags")
	goes := func(t Tag) bool {
		if t.Kind != kind || !slices.Contains(ids, t.Resource) {
			return false
		}
		return len(pairs) == 0 || slices.ContainsFunc(pairs, func(p map[string]string) bool {
			return p["key"] == t.Key && (p["value"] == "" || p["value"] == t.Value)
		})
	}
	return begun(c.submit("", job{effect: func() (any, error) {
		before := len(s.tags)
		if s.tags = slices.DeleteFunc(s.tags, goes); len(s.tags) == before {
			return nil, refuse(codeParam, "Unable to find any tags which conform to specified delete parameters.")
		}
		return success(), nil
	}}), ""), nil
}

func (c *call) listTags() (any, error) {
	visible, err := c.scope()
	if err != nil {
		return nil, err
	}
	var list []map[string]any
	for _, t := range c.s.tags {
		_, owner := c.s.taggable(t.Kind, t.Resource)
		if visible(owner) && c.matches("key", t.Key) && c.matches("value", t.Value) && c.matches("resourceid", t.Resource) &&
			(c.p["resourcetype"] == "" || strings.EqualFold(c.p["resourcetype"], t.Kind)) {
			list = append(list, c.s.shownTag(t))
		}
	}
	return c.page("tag", list)
}
