package linodesim

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// reservation is a reserved address; it outlives what it is assigned to.
type reservation struct {
	address string
	tags    []string
}

// Reserve reserves an address of the account.
func (s *Sim) Reserve(ip string, tags ...string) {
	s.mu.Do(func() { s.reserved[ip] = &reservation{address: ip, tags: append([]string{}, tags...)} })
}

// Reserved reports whether an address is reserved.
func (s *Sim) Reserved(ip string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reserved[ip] != nil
}

func (s *Sim) reservedView(r *reservation) map[string]any {
	view := map[string]any{
		"address": r.address, "gateway": "198.19.0.1", "subnet_mask": "255.255.255.0", "prefix": 24, "type": "ipv4", "public": true, "rdns": nil,
		"linode_id":    nil,
		"interface_id": nil, "region": Region, "vpc_nat_1_1": nil, "reserved": true, "assigned_entity": nil, "tags": r.tags,
	}
	for _, nb := range s.nodeBalancers {
		if nb.IPv4 == r.address {
			view["assigned_entity"] = map[string]any{"id": nb.ID, "type": "nodebalancer", "label": nb.Label, "url": fmt.Sprintf("/v4/nodebalancers/%d", nb.ID)}
		}
	}
	return view
}

func (s *Sim) listReserved(r *http.Request, _ []string) (any, error) {
	all := []any{}
	for _, ip := range slices.Sorted(maps.Keys(s.reserved)) {
		all = append(all, s.reservedView(s.reserved[ip]))
	}
	return list(s, r, all)
}

func (s *Sim) getReserved(_ *http.Request, ids []string) (any, error) {
	if s.reserved[ids[0]] == nil {
		return nil, errNotFound
	}
	return s.reservedView(s.reserved[ids[0]]), nil
}

func (s *Sim) reserve(r *http.Request, _ []string) (any, error) {
	var in struct {
		Region string   `json:"region"`
		Tags   []string `json:"tags"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Region != Region {
		return nil, invalid("region", "region is not valid")
	}
	one := &reservation{address: nth("198.19.128.0", s.next()-firstID), tags: append([]string{}, in.Tags...)}
	s.reserved[one.address] = one
	return s.reservedView(one), nil
}

// release ends a reservation. What has the address keeps it, for as long as it exists.
func (s *Sim) release(_ *http.Request, ids []string) (any, error) {
	if s.reserved[ids[0]] == nil {
		return nil, errNotFound
	}
	delete(s.reserved, ids[0])
	return struct{}{}, nil
}
