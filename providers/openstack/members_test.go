package openstack

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
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
			is:   []step{{kind: removeMember, id: "p", member: has("2", b.Address), reason: "not wanted"}},
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
			assert.Equal(t, tc.is, memberSteps(&pool{ID: "p", members: memberSetOf(tc.have, inventory.NewLists[memberRow]())}, tc.want, false))
		})
	}
}

const (
	firstID  = "6f0a3c1e-0000-4000-8000-000000000001"
	secondID = "6f0a3c1e-0000-4000-8000-000000000002"
)

// TestMemberSets: what is packed comes out again, whatever the cloud or others have made of it.
func TestMemberSets(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]member{
		"none": {},
		"two": {
			{ID: secondID, Name: "a", Address: "10.0.0.2", Port: 80, SubnetID: "s"}, {ID: firstID, Name: "b", Address: "10.0.0.1", Port: 80},
		},
		"an unknown ID": {{Name: "a", Address: "10.0.0.2", Port: 80}, {ID: firstID, Name: "b", Address: "10.0.0.1", Port: 80}},
		"monitor ports": {{ID: firstID, Address: "10.0.0.2", Port: 80, MonitorPort: 81}, {ID: secondID, Address: "10.0.0.1", Port: 80}},
		"several ports": {{ID: firstID, Address: "10.0.0.2", Port: 80}, {ID: secondID, Address: "10.0.0.2", Port: 81}},
		"IDs of any form": {
			{ID: "7", Address: "10.0.0.2", Port: 80},
			{ID: "6F0A3C1E-0000-4000-8000-00000000000A", Address: "10.0.0.3", Port: 80},
			{ID: "6f0a3c1e000040008000000000000001", Address: "10.0.0.4", Port: 80},
		},
		"the nil UUID": {{ID: "00000000-0000-0000-0000-000000000000", Address: "10.0.0.2", Port: 80}},
		"twice":        {{ID: firstID, Name: "a", Address: "10.0.0.2", Port: 80}, {ID: secondID, Name: "a", Address: "10.0.0.2", Port: 80}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lists := inventory.NewLists[memberRow]()
			set := memberSetOf(list, lists)
			assert.ElementsMatch(t, list, set.list())

			var references []reference
			for _, m := range list {
				if m.ID != "" {
					references = append(references, reference{m.ID})
				}
			}
			text, err := json.Marshal(references)
			require.NoError(t, err)
			var have idSet
			require.NoError(t, json.Unmarshal(text, &have))
			assert.Equal(t, len(references) == len(list), have.matches(set), "as many, and these")
			more := append(slices.Clone(list), member{Name: "new", Address: "10.0.0.9", Port: 80})
			assert.Equal(t, len(references) == len(more), have.matches(memberSetOf(more, lists)))
			if len(list) > 1 && list[0].ID != "" && list[1].ID != "" {
				other := slices.Clone(list)
				other[0].ID = "6f0a3c1e-0000-4000-8000-0000000000ff"
				assert.False(t, have.matches(memberSetOf(other, lists)), "another one")
				other[0].ID = ""
				assert.True(t, have.matches(memberSetOf(other, lists)), "one whose ID was not told")
			}
		})
	}
}

// TestMembersShareMemory: pools that have the same nodes keep one list of what they have in common, also after a batch and after one that
// joins or leaves.
func TestMembersShareMemory(t *testing.T) {
	t.Parallel()
	lists := inventory.NewLists[memberRow]()
	var wanted []memberRequest
	for i := range 100 {
		wanted = append(wanted, memberRequest{Name: fmt.Sprint("worker-", i), Address: fmt.Sprintf("10.0.0.%d", i), Port: 30080, SubnetID: "s"})
	}
	var rows []*memberRow
	for i := range 2 {
		p := &pool{ID: "p"}
		for j := range wanted {
			wanted[j].Port = 30080 + i
		}
		p.change(step{kind: setMembers, id: "p", members: wanted[:99]}, "", lists)
		for _, m := range p.members.list() {
			assert.Empty(t, m.ID, "what a batch makes has IDs that are not told")
		}
		p.change(step{kind: addMember, id: "p", body: wanted[99]}, firstID, lists)
		assert.Nil(t, memberSteps(p, wanted, false))
		rows = append(rows, &p.members.rows[0])
		p.change(step{kind: removeMember, id: "p", member: member{ID: firstID}}, "", lists)
		assert.Nil(t, memberSteps(p, wanted[:99], false))
		rows = append(rows, &p.members.rows[0])
		p.change(step{kind: addMember, id: "p", body: wanted[99]}, secondID, lists)
		p.change(step{kind: setMembers, id: "p", members: wanted[50:]}, "", lists)
		assert.Equal(t, secondID, p.members.list()[49].ID, "a batch keeps the IDs that are known")
	}
	assert.Same(t, rows[0], rows[2])
	assert.Same(t, rows[1], rows[3])
}

// TestLargeMemberSets: what stands for the IDs is the same however a pool became what it is, also where it became large or small meanwhile.
func TestLargeMemberSets(t *testing.T) {
	t.Parallel()
	lists := inventory.NewLists[memberRow]()
	id := func(i int) string { return fmt.Sprintf("6f0a3c1e-0000-4000-8000-%012x", i+1) }
	var list []member
	for i := range maxKeptIDs {
		list = append(list, member{ID: id(i), Name: fmt.Sprint("n", i), Address: fmt.Sprintf("10.0.%d.%d", i>>8, i&255), Port: 80})
	}
	one := member{ID: id(maxKeptIDs), Name: "more", Address: "10.1.0.0", Port: 80}
	listed := func(list []member) (have idSet) {
		references := make([]reference, len(list))
		for i, m := range list {
			references[len(list)-1-i] = reference{m.ID} // in any order
		}
		text, err := json.Marshal(references)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &have))
		return have
	}
	small := memberSetOf(list, lists)
	assert.Len(t, small.ids, maxKeptIDs)
	large := small.withMember(one, lists)
	assert.Nil(t, large.ids)
	assert.Nil(t, listed(append(slices.Clone(list), one)).ids)
	assert.Equal(t, memberSetOf(append(slices.Clone(list), one), lists), large)
	assert.True(t, listed(append(slices.Clone(list), one)).matches(large))
	assert.False(t, listed(append(slices.Clone(list), member{ID: id(5000)})).matches(large), "another one")

	for name, gone := range map[string]member{"the new one": one, "another one": list[3]} {
		after := large.withoutMember(gone, lists)
		rest := slices.DeleteFunc(append(slices.Clone(list), one), func(m member) bool { return m.ID == gone.ID })
		assert.True(t, listed(rest).matches(after), name)
		assert.False(t, listed(append(slices.Clone(rest[1:]), member{ID: id(5000)})).matches(after), name)
		assert.Equal(t, maxKeptIDs, after.size(), name)
		for _, m := range after.list() {
			assert.NotEqual(t, gone.Address, m.Address, name)
		}
	}

	untold := large.withMember(member{Name: "untold", Address: "10.1.0.1", Port: 80}, lists)
	assert.False(t, listed(append(slices.Clone(list), one, member{ID: id(5001)})).matches(untold), "the pool is read")

	var half []memberRequest
	for _, m := range list[:maxKeptIDs/2] {
		half = append(half, memberRequest{Name: m.Name, Address: m.Address, Port: m.Port})
	}
	for before, lost := range map[*memberSet]bool{&small: false, &large: true} {
		after := membersAfterBatch(*before, half, lists)
		assert.Equal(t, !lost, listed(list[:maxKeptIDs/2]).matches(after))
		assert.Equal(t, lost, after.withMember(one, lists).idsDropped, "until it is read")
	}
}

// TestShownPool: a plan that deletes a pool shows which members it has.
func TestShownPool(t *testing.T) {
	t.Parallel()
	members := memberSetOf([]member{{ID: firstID, Address: "10.0.0.1", Port: 80}}, inventory.NewLists[memberRow]())
	d := &details{pools: []pool{{ID: "p", Name: "web", members: members}}}
	before, after := step{kind: deletePool, id: "p"}.compare(nil, d)
	assert.Nil(t, after)
	text, err := json.Marshal(before)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"members":["10.0.0.1:80"]`)
	assert.Contains(t, string(text), `"name":"web"`)
}

// TestNetworkWithoutSubnet: with network-id alone, Octavia chooses the subnet of a load balancer, so that the members of its creation name
// none. Security groups and nodes that join later find it, and the first members are not written again for it.
func TestNetworkWithoutSubnet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "network-id = "+firstNet+"\nmanage-security-groups = true\n", web(nil))
		assert.Equal(t, []string{"tcp 30080 10.0.0.0/16"}, groupRules(w))
		w.addNode(openstacksim.Spec{Name: "n3"})
		w.update(s)
		subnets := map[string]string{}
		for _, m := range w.sim.Pools()[0].BackendMembers() {
			subnets[m.Name] = deref(m.SubnetID)
		}
		assert.Equal(t, map[string]string{"n1": "", "n2": "", "n3": firstSubnet}, subnets)
		w.requireNoWrites(s)
	})
}

// TestNodesOfAClass: a change of nodes uses the same subnet as the creation, also with a class that names none.
func TestNodesOfAClass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "[LoadBalancerClass \"plain\"]\nfloating-subnet = public*\n", web(map[string]string{annotationClass: "plain"}))
		w.addNode(openstacksim.Spec{Name: "n3"})
		w.update(s)
		for _, m := range w.sim.Pools()[0].BackendMembers() {
			assert.Equal(t, firstSubnet, deref(m.SubnetID), m.Name)
		}
	})
}

// TestUnknownSubnetMovesNoMembers: while the subnet of the members cannot be told, a change of nodes moves neither members nor rules
// elsewhere.
func TestUnknownSubnetMovesNoMembers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "manage-security-groups = true\n", web(nil))
		other := w.sim.AddSubnet(w.sim.AddNetwork("other", false), "other", "10.9.0.0/16")
		s, _ = w.changed(s, func(s *v1.Service) { s.Annotations[annotationMemberSubnetID] = other })
		require.Equal(t, []string{"tcp 30080 10.9.0.0/16"}, groupRules(w))
		now := w.Current(s)
		now.Annotations[annotationMemberSubnetID] = "typo"
		w.Apply(now)
		w.addNode(openstacksim.Spec{Name: "n3"})
		require.ErrorContains(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes), annotationMemberSubnetID)
		assert.Equal(t, []string{"tcp 30080 10.9.0.0/16"}, groupRules(w))
	})
}
