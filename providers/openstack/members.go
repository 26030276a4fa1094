package openstack

import (
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// Each pool has a member for each node: 5,000 nodes and 500 load balancers with two ports have 5 million. In memory each takes its ID, and
// what members of other pools have in common with it is there once.

// memberRow is what a member has in common with those of other pools.
type memberRow struct{ name, address, subnetID string }

// memberSet are the members of a pool, which nobody changes.
type memberSet struct {
	rows              []memberRow
	ids               []uuid.UUID // the nil one where an ID is not known
	port, monitorPort int
	// odd are the members of a pool whose ports differ, or whose IDs are no UUIDs in the usual form.
	odd []member
}

// idSet are the IDs of the members of a pool.
type idSet struct {
	ids []uuid.UUID
	odd []string
}

// uuidOf returns an ID that has the usual form; "" is none.
func uuidOf(id string) (u uuid.UUID, usual bool) {
	if id == "" {
		return u, true
	}
	u, err := uuid.Parse(id)
	return u, err == nil && u != uuid.Nil && u.String() == id
}

func memberSetOf(list []member, lists *inventory.Lists[memberRow]) memberSet {
	if len(list) == 0 {
		return memberSet{}
	}
	sorted := slices.SortedStableFunc(slices.Values(list), func(a, b member) int {
		return cmp.Or(strings.Compare(a.Address, b.Address), strings.Compare(a.Name, b.Name))
	})
	s := memberSet{port: list[0].Port, monitorPort: list[0].MonitorPort, ids: make([]uuid.UUID, len(list))}
	rows := make([]memberRow, len(list))
	for i, m := range sorted {
		id, usual := uuidOf(m.ID)
		if !usual || m.Port != s.port || m.MonitorPort != s.monitorPort {
			return memberSet{odd: slices.Clone(list)}
		}
		s.ids[i], rows[i] = id, memberRow{m.Name, m.Address, m.SubnetID}
	}
	s.rows = lists.Same(rows)
	return s
}

// list returns the members.
func (s memberSet) list() []member {
	if s.odd != nil {
		return s.odd
	}
	list := make([]member, len(s.rows))
	for i, row := range s.rows {
		list[i] = member{Name: row.name, Address: row.address, SubnetID: row.subnetID, Port: s.port, MonitorPort: s.monitorPort}
		if s.ids[i] != uuid.Nil {
			list[i].ID = s.ids[i].String()
		}
	}
	return list
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *idSet) UnmarshalJSON(text []byte) error {
	var list []reference
	if err := json.Unmarshal(text, &list); err != nil {
		return err //nolint:wrapcheck // the decoder names the place
	}
	*s = idSet{}
	for _, r := range list {
		if id, usual := uuidOf(r.ID); usual && r.ID != "" {
			s.ids = append(s.ids, id)
		} else {
			s.odd = append(s.odd, r.ID)
		}
	}
	s.ids = slices.Clip(s.ids)
	return nil
}

// areThose reports whether a pool has the members that it should have: each of those whose ID is known, and as many.
func (s idSet) areThose(wanted memberSet) bool {
	if len(wanted.rows)+len(wanted.odd) != len(s.ids)+len(s.odd) {
		return false
	}
	if wanted.odd == nil && len(s.odd) == 0 {
		have := make(map[uuid.UUID]struct{}, len(s.ids))
		for _, id := range s.ids {
			have[id] = struct{}{}
		}
		return !slices.ContainsFunc(wanted.ids, func(id uuid.UUID) bool {
			_, there := have[id]
			return id != uuid.Nil && !there
		})
	}
	have := map[string]bool{"": true}
	for _, id := range s.ids {
		have[id.String()] = true
	}
	for _, id := range s.odd {
		have[id] = true
	}
	return !slices.ContainsFunc(wanted.list(), func(m member) bool { return !have[m.ID] })
}

// forgetIDs lets go of lists of IDs of which the members themselves tell, or are about to.
func (d *details) forgetIDs() {
	for i := range d.pools {
		d.pools[i].MemberIDs = idSet{}
	}
}

// memberKey is what tells members apart.
type memberKey struct {
	name, address     string
	port, monitorPort int
}

func compareKeys(a, b memberKey) int {
	return cmp.Or(
		strings.Compare(a.name, b.name), strings.Compare(a.address, b.address),
		cmp.Compare(a.port, b.port), cmp.Compare(a.monitorPort, b.monitorPort),
	)
}

// missing goes through the keys of one map that another one lacks.
func missing[A, B any](of map[memberKey]A, from map[memberKey]B) iter.Seq[memberKey] {
	return func(yield func(memberKey) bool) {
		for k := range of {
			if _, there := from[k]; !there && !yield(k) {
				return
			}
		}
	}
}
