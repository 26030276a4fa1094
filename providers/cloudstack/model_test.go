package cloudstack

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

const otherID = "3a5c5b0e-0000-4a5b-8000-000000000002"

func TestProviderIDs(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"external-cloudstack://" + someID, "external-cloudstack:///" + someID, "cloudstack:///" + someID, "cloudstack://region/" + someID, someID,
	} {
		id, err := parseProviderID(text)
		assert.NoError(t, err, text)
		assert.Equal(t, someID, id, text)
		assert.Equal(t, someID, instanceKey(text), text)
		assert.True(t, namesInstance(text))
	}
	assert.Equal(t, bareID, instanceKey(bareID), "versions 1.1.x wrote it on all Nodes: it is ours")
	assert.False(t, namesInstance(bareID))
	for _, text := range []string{"aws:///a/i-1", "kind://docker/kind/worker", "ovirt://" + someID, "node-1"} {
		assert.Empty(t, instanceKey(text), text)
	}
}

// TestOwner: keyword finds names and descriptions that only hold the name of the load balancer; they are nobody's of ours.
func TestOwner(t *testing.T) {
	t.Parallel()
	const lb = "a224691befa864b07938cc86d948b99f"
	for name, want := range map[string]string{
		lb + "-tcp-80": lb, lb + "-udp-53": lb, lb + "-tcp-proxy-80": lb, lb + "-80": lb, lb: "",
		lb + "-http-80": lb + "-http", "x-" + lb + "-tcp-80": "x-" + lb, lb + "-tcp-": "",
	} {
		assert.Equal(t, want, rule{Name: name}.owner(), name)
	}
}

// TestNetworksOfRules: what was created has blanks between them and what was changed has commas; none at all, as before v1.2.0, is
// everybody.
func TestNetworksOfRules(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"0.0.0.0/0"}, cidrs(""))
	assert.Equal(t, cidrs("10.0.0.0/8 192.0.2.0/24"), cidrs("192.0.2.0/24,10.0.0.0/8"))
	w := wantedRule{Name: "n", Protocol: "tcp", Algorithm: "roundrobin", Port: 80, NodePort: 30080, CIDRs: cidrs("")}
	r := rule{Name: "n", Protocol: "tcp", Algorithm: "roundrobin", PublicPort: "80", PrivatePort: "30080"}
	for _, inPlace := range []bool{false, true} {
		differs, again := r.compare(w, inPlace)
		assert.Empty(t, differs, "a rule of v1.1 is as it should be")
		assert.False(t, again)
	}
	r.CIDRs = "10.0.0.0/8"
	_, again := r.compare(w, false)
	assert.True(t, again, "before 4.22 the networks of a rule do not change")
	differs, again := r.compare(w, true)
	assert.Equal(t, []string{"networks that may reach it"}, differs)
	assert.False(t, again)
}

// TestTook: an address goes with its Service only where something that the author of the Service cannot write says that it was taken for
// it.
func TestTook(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return created.Add(d).Format(timeForm) }
	theirs, ours := []rule{{AddressID: someID}}, []rule{{AddressID: someID, Description: "anyccm:c anyccm-svc:u"}}
	marked := []rule{{AddressID: someID, Description: "anyccm:c " + addressMark(someID)}}
	recorded := record{id: someID}
	for name, c := range map[string]struct {
		s      settings
		sealed record
		wanted string
		rules  []rule
		age    time.Duration
		ahead  time.Duration
		want   bool
	}{
		"of the official controller":                   {settings{}, record{}, "", theirs, time.Minute, 0, true},
		"of the official controller, and older":        {settings{}, record{}, "", theirs, -time.Minute, 0, false},
		"of the official controller, clocks differ":    {settings{}, record{}, "", theirs, -20 * time.Second, 0, true},
		"of the official controller, a clock behind":   {settings{}, record{}, "", theirs, -5 * time.Minute, -5 * time.Minute, true},
		"older, as a clock ahead tells":                {settings{}, record{}, "", theirs, time.Minute, 5 * time.Minute, false},
		"of the official controller, and much younger": {settings{}, record{}, "", theirs, time.Hour, 0, false},
		"named, of the official controller":            {settings{}, record{}, "192.0.2.1", theirs, time.Minute, 0, false},
		"named, and an annotation says it was taken":   {settings{Associated: true}, record{}, "192.0.2.1", theirs, time.Minute, 0, false},
		"used by us, and no record":                    {settings{}, record{}, "", ours, time.Minute, 0, false},
		"the rules say so":                             {settings{}, record{}, "", marked, -time.Hour, 0, true},
		"the rules say so, and another one is named":   {settings{}, record{}, "192.0.2.9", marked, 0, 0, true},
		"the record says so":                           {settings{}, recorded, "", ours, -time.Hour, 0, true},
		"the record says so, and no rules are left":    {settings{}, recorded, "", nil, time.Hour, 0, true},
		"a record that this program did not write":     {settings{Record: someID}, record{}, "", ours, time.Minute, 0, false},
		"the record says that it is somebody's":        {settings{}, record{id: someID, keep: true}, "", theirs, time.Minute, 0, false},
		"the record of another address":                {settings{}, record{id: otherID}, "", ours, time.Minute, 0, false},
		"it is to be kept":                             {settings{KeepIP: true}, recorded, "", ours, 0, 0, false},
		"it is to be kept, of the official controller": {settings{KeepIP: true}, record{}, "", theirs, time.Minute, 0, false},
	} {
		s := &v1.Service{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
		c.s.Address = c.wanted
		assert.Equal(t, c.want, isAcquiredFor(s, c.s, c.sealed, c.rules, address{ID: someID, IP: "192.0.2.1", Allocated: at(c.age)}, c.ahead), name)
	}
}

// TestSeals: a record counts for the Service, the address and the time at which it was given for which it was sealed, and for no other.
func TestSeals(t *testing.T) {
	t.Parallel()
	given := address{ID: someID, Allocated: "2026-01-01T00:00:00+0000"}
	asked := requestPrefix + "2026-01-01T00:00:00Z"
	serviceOf := func(uid, ip string) *v1.Service {
		s := &v1.Service{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
		if ip != "" {
			s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: ip}}
		}
		return s
	}
	mine := serviceOf("mine", "")
	written := func(text string) record {
		return recordOf(&v1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationRecord: text}}})
	}
	sealed := func(key, text string, a address) record { return written(text + sealMark + seal(key, mine, text, a)) }
	for name, c := range map[string]struct {
		r       record
		service *v1.Service
		a       address
		want    bool
	}{
		"as it was sealed":                   {sealed("key", someID, given), mine, given, true},
		"the address is shown by now":        {sealed("key", someID, given), serviceOf("mine", "192.0.2.1"), given, true},
		"the same time in another zone":      {sealed("key", someID, given), mine, address{ID: someID, Allocated: "2026-01-01T02:00:00+0200"}, true},
		"without a seal":                     {written(someID), mine, given, false},
		"with another key":                   {sealed("other", someID, given), mine, given, false},
		"of another Service":                 {sealed("key", someID, given), serviceOf("other", ""), given, false},
		"of an address that was given again": {sealed("key", someID, given), mine, address{ID: someID, Allocated: "2026-01-02T00:00:00+0000"}, false},
		"of an address that was not taken":   {written(someID + sealMark + sealed("key", keepPrefix+someID, given).seal), mine, given, false},
		"asked for":                          {sealed("key", asked, address{}), mine, address{}, true},
		"asked for, and answered since":      {sealed("key", asked, address{}), serviceOf("mine", "192.0.2.1"), address{}, false},
		"asked for at another time":          {written(requestPrefix + "2026-01-02T00:00:00Z" + sealMark + sealed("key", asked, address{}).seal), mine, address{}, false},
	} {
		assert.Equal(t, c.want, c.r.isSealedBy("key", c.service, c.a), name)
	}
}

// TestACL: what somebody made by hand for a port decides; others' items and those of the other direction do not count.
func TestACL(t *testing.T) {
	t.Parallel()
	item := func(protocol, port, cidr, action, traffic, reason string) aclItem {
		return aclItem{
			ID: protocol + port + cidr + action + reason, Protocol: protocol, Start: port, End: port, CIDRs: cidr,
			Action: action, Traffic: traffic, Reason: reason,
		}
	}
	everyone := []string{everybody}
	ours, others := reasonPrefix+"lb", reasonPrefix+"other"
	for name, c := range map[string]struct {
		items         []aclItem
		missing, hand bool
		surplus       int
	}{
		"nothing": {nil, true, false, 0},
		"ours":    {[]aclItem{item("tcp", "80", everybody, "Allow", "Ingress", ours)}, false, false, 0},
		"ours twice": {
			[]aclItem{item("tcp", "80", everybody, "Allow", "Ingress", ours), item("tcp", "80", everybody, "Allow", "Ingress", ours)},
			false, false, 1,
		},
		"ours with other networks":    {[]aclItem{item("tcp", "80", "10.0.0.0/8", "Allow", "Ingress", ours)}, true, false, 1},
		"another load balancer's":     {[]aclItem{item("tcp", "80", everybody, "Allow", "Ingress", others)}, true, false, 0},
		"of v1.2.0, without a reason": {[]aclItem{item("tcp", "80", everybody, "Allow", "Ingress", "")}, false, true, 0},
		"upper case, as CKS has it":   {[]aclItem{item("TCP", "80", everybody, "Allow", "Ingress", "")}, false, true, 0},
		"it leaves":                   {[]aclItem{item("tcp", "80", everybody, "Allow", "Egress", "")}, true, false, 0},
		"denied by hand":              {[]aclItem{item("tcp", "80", everybody, "Deny", "Ingress", "")}, false, true, 0},
		"all is denied at the end":    {[]aclItem{{ID: "x", Protocol: "all", CIDRs: everybody, Action: "Deny", Traffic: "Ingress"}}, true, false, 0},
		"another port":                {[]aclItem{item("tcp", "443", everybody, "Allow", "Ingress", "")}, true, false, 0},
	} {
		v := aclOf(c.items, "lb", "tcp", 80, everyone)
		assert.Equal(t, c.missing, v.missing, name)
		assert.Equal(t, c.hand, v.manual != nil, name)
		assert.Len(t, v.surplus, c.surplus, name)
	}
}

// TestLeavingItems: an item without a reason goes only with a rule of CloudStack's own controller, and when no other rule needs the port.
func TestLeavingItems(t *testing.T) {
	t.Parallel()
	plain := aclItem{ID: "plain", Protocol: "tcp", Start: "80", End: "80", CIDRs: everybody, Action: "Allow", Traffic: "Ingress"}
	own, other := plain, plain
	own.ID, own.Reason = "own", reasonPrefix+"lb"
	other.ID, other.Reason = "other", reasonPrefix+"other"
	items := []aclItem{plain, own, other}
	ids := func(r rule, others ...rule) (list []string) {
		for _, i := range itemsToDelete(items, "lb", r, others) {
			list = append(list, i.ID)
		}
		return list
	}
	theirs := rule{ID: "1", PublicPort: "80", Protocol: protocolProxy}
	ours := theirs
	ours.Description = "anyccm:c"
	assert.Equal(t, []string{"plain", "own"}, ids(theirs))
	assert.Equal(t, []string{"own"}, ids(theirs, rule{ID: "2", PublicPort: "80", Protocol: "tcp"}))
	assert.Equal(t, []string{"own"}, ids(ours))
}

func TestInstanceTypes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"Small Instance": "SmallInstance", "c2.medium": "c2medium", "été": "t", "": ""} {
		assert.Equal(t, want, instanceType(name))
	}
	assert.Equal(t, "zone-1", nodes.LabelValue("zone-1"))
	assert.Equal(t, "zone-1", nodes.LabelValue("zone 1"))
}

// TestNetworkOf: the network that most nodes are in, and of several the one of their default routes.
func TestNetworkOf(t *testing.T) {
	t.Parallel()
	machineIn := func(networks ...string) (m machine) {
		for i, n := range networks {
			m.vm.NICs = append(m.vm.NICs, nic{NetworkID: n, Default: i == len(networks)-1})
		}
		return m
	}
	assert.Equal(t, "b", networkOf([]machine{machineIn("a", "b"), machineIn("a", "b")}))
	assert.Equal(t, "a", networkOf([]machine{machineIn("a", "b"), machineIn("a"), machineIn("c")}))
	assert.Empty(t, networkOf([]machine{{}}))
}
