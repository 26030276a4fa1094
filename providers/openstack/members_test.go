package openstack

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestMemberSteps: Octavia works on every member of a batch, so that a single difference is a call of its own.
func TestMemberSteps(t *testing.T) {
	t.Parallel()
	has := func(id, address string) member { return member{ID: id, Name: "n", Address: address, Port: 30080} }
	want := func(address string) memberRequest {
		return memberRequest{Name: "n", Address: address, Port: 30080, SubnetID: "s"}
	}
	a, b, c := want("10.0.0.1"), want("10.0.0.2"), want("10.0.0.3")
	moved := a
	moved.MonitorPort = 10256
	for name, tc := range map[string]struct {
		have []member
		want []memberRequest
		is   []step
	}{
		"the same": {
			have: []member{has("1", a.Address), has("2", b.Address)},
			want: []memberRequest{b, a},
		},
		"one joins": {
			have: []member{has("1", a.Address)},
			want: []memberRequest{a, b},
			is:   []step{{kind: addMember, id: "p", body: b, reason: "missing"}},
		},
		"one leaves": {
			have: []member{has("1", a.Address), has("2", b.Address)},
			want: []memberRequest{a},
			is:   []step{{kind: removeMember, id: "p", member: "2", reason: "not wanted"}},
		},
		"one leaves whose ID is not known": {
			have: []member{has("1", a.Address), has("", b.Address)},
			want: []memberRequest{a},
			is:   []step{{kind: setMembers, id: "p", members: []memberRequest{a}, reason: "1 of 1 members differ"}},
		},
		"one is there twice": {
			have: []member{has("1", a.Address), has("2", a.Address)},
			want: []memberRequest{a},
		},
		"one has another monitor port, which a member of the same address cannot be added with": {
			have: []member{has("1", a.Address)},
			want: []memberRequest{moved},
			is:   []step{{kind: setMembers, id: "p", members: []memberRequest{moved}, reason: "2 of 1 members differ"}},
		},
		"two join": {
			have: []member{has("1", a.Address)},
			want: []memberRequest{a, b, c},
			is:   []step{{kind: setMembers, id: "p", members: []memberRequest{a, b, c}, reason: "2 of 3 members differ"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.is, memberSteps(&pool{ID: "p", members: tc.have}, tc.want, false))
		})
	}
}
