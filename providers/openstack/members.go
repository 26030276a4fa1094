package openstack

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// Each pool has a member for each node: with 5,000 nodes and 500 load balancers of two ports, 5 million. So pools share equal member lists
// in memory, and large ones keep only a digest of the IDs.

// maxKeptIDs is the largest pool whose member IDs are kept. Removing a member from a larger one costs one more call, to find its ID.
const maxKeptIDs = 1024

// memberRow holds the fields of a member that are equal in all pools.
type memberRow struct{ name, address, subnetID string }

// memberSet is the immutable set of a pool's members.
type memberSet struct {
	rows []memberRow
	// ids is nil for large pools; a nil UUID is unknown.
	ids               []uuid.UUID
	port, monitorPort int
	// irregular holds all members if their ports differ or an ID is not a UUID in the usual form.
	irregular []member
	// idsDropped is set if IDs were dropped, so that only the digest can be compared.
	idsDropped bool
	digest
}

// idSet holds the member IDs of a pool. The lists are nil for large pools.
type idSet struct {
	size      int
	ids       []uuid.UUID
	irregular []string
	digest
}

// digest is the number of known member IDs and the sum of their hashes, independent of order.
type digest struct {
	known int
	sum   uint64
}

func hashOf(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(sum[:])
}

func (d *digest) add(id string) {
	if id != "" {
		d.known, d.sum = d.known+1, d.sum+hashOf(id)
	}
}

func (d *digest) addAll(members []member) {
	for _, m := range members {
		d.add(m.ID)
	}
}

func (d *digest) remove(id string) {
	if id != "" {
		d.known, d.sum = d.known-1, d.sum-hashOf(id)
	}
}

// uuidOf parses an ID in the usual form; "" becomes the nil UUID.
func uuidOf(id string) (u uuid.UUID, usual bool) {
	if id == "" {
		return u, true
	}
	u, err := uuid.Parse(id)
	return u, err == nil && u != uuid.Nil && u.String() == id
}

func memberSetOf(list []member, lists *inventory.Lists[memberRow]) memberSet {
	s := packMembers(list, lists)
	s.addAll(list)
	return s
}

// looseMemberSet keeps members as they are.
func looseMemberSet(list []member) memberSet {
	s := memberSet{irregular: list}
	s.addAll(list)
	return s
}

// packMembers is memberSetOf without the digest.
func packMembers(list []member, lists *inventory.Lists[memberRow]) memberSet {
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
			return memberSet{irregular: slices.Clone(list)}
		}
		s.ids[i], rows[i] = id, memberRow{m.Name, m.Address, m.SubnetID}
	}
	if s.rows = lists.Same(rows); len(rows) > maxKeptIDs {
		s.ids, s.idsDropped = nil, true
	}
	return s
}

func (s memberSet) size() int { return len(s.rows) + len(s.irregular) }

// list returns the members, without IDs for a large pool.
func (s memberSet) list() []member {
	if s.irregular != nil {
		return s.irregular
	}
	list := make([]member, len(s.rows))
	for i, row := range s.rows {
		list[i] = member{Name: row.name, Address: row.address, SubnetID: row.subnetID, Port: s.port, MonitorPort: s.monitorPort}
		if s.ids != nil && s.ids[i] != uuid.Nil {
			list[i].ID = s.ids[i].String()
		}
	}
	return list
}

func (s memberSet) withMember(m member, lists *inventory.Lists[memberRow]) memberSet {
	after := packMembers(append(slices.Clone(s.list()), m), lists)
	after.digest, after.idsDropped = s.digest, after.idsDropped || s.idsDropped
	after.add(m.ID)
	return after
}

// withoutMember removes a member, identified by its ID if IDs are kept.
func (s memberSet) withoutMember(gone member, lists *inventory.Lists[memberRow]) memberSet {
	after := packMembers(slices.DeleteFunc(slices.Clone(s.list()), func(m member) bool {
		return m.ID == gone.ID && m.ID != "" || m.ID == "" && m.key() == gone.key()
	}), lists)
	after.digest, after.idsDropped = s.digest, after.idsDropped || s.idsDropped
	after.remove(gone.ID)
	return after
}

// forget drops the lists of IDs and keeps the digest.
func (s *idSet) forget() { s.ids, s.irregular = nil, nil }

// UnmarshalJSON implements json.Unmarshaler.
func (s *idSet) UnmarshalJSON(text []byte) error {
	var list []reference
	if err := json.Unmarshal(text, &list); err != nil {
		return err //nolint:wrapcheck // the decoder names the place
	}
	*s = idSet{size: len(list)}
	for _, r := range list {
		s.add(r.ID)
		switch id, usual := uuidOf(r.ID); {
		case len(list) > maxKeptIDs:
		case usual && r.ID != "":
			s.ids = append(s.ids, id)
		default:
			s.irregular = append(s.irregular, r.ID)
		}
	}
	s.ids = slices.Clip(s.ids)
	return nil
}

// matches reports whether a pool has the wanted members: the same number, including all known IDs.
func (s idSet) matches(wanted memberSet) bool {
	switch {
	case s.size != wanted.size():
		return false
	case wanted.known == s.size:
		return s.digest == wanted.digest
	case wanted.idsDropped:
		return false
	case s.ids == nil && s.irregular == nil: // the pool is large, and some wanted IDs are unknown
		return s.size == 0
	case wanted.irregular == nil && len(s.irregular) == 0:
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
	for _, id := range s.irregular {
		have[id] = true
	}
	return !slices.ContainsFunc(wanted.list(), func(m member) bool { return !have[m.ID] })
}

// forgetIDs drops lists of IDs that the members make redundant.
func (d *details) forgetIDs() {
	for i := range d.pools {
		d.pools[i].MemberIDs = idSet{}
	}
}

type memberKey struct {
	name, address     string
	port, monitorPort int
}

func (m member) key() memberKey { return memberKey{m.Name, m.Address, m.Port, m.MonitorPort} }

func compareKeys(a, b memberKey) int {
	return cmp.Or(
		strings.Compare(a.name, b.name), strings.Compare(a.address, b.address),
		cmp.Compare(a.port, b.port), cmp.Compare(a.monitorPort, b.monitorPort),
	)
}

// keysMissing iterates over the keys of one map that the other lacks.
func keysMissing[A, B any](of map[memberKey]A, from map[memberKey]B) iter.Seq[memberKey] {
	return func(yield func(memberKey) bool) {
		for k := range of {
			if _, there := from[k]; !there && !yield(k) {
				return
			}
		}
	}
}
