package nodes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

const (
	byNameIndex    = "name"
	byAddressIndex = "address"
)

// machine is an instance of the cloud of these tests.
type machine struct {
	id                   int
	name, address, state string
}

// fakeCloud has machines, answers reads about them, and counts these.
type fakeCloud struct {
	mu       sync.Mutex
	machines map[int]machine
	// readErr and listErr are the answers of single reads and of listings instead.
	readErr, listErr error
	// hidden machines are missing from listings.
	hidden map[int]bool

	reads, lists int
	batches      [][]int
}

func (c *fakeCloud) list(context.Context) ([]machine, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	var all []machine
	for id, m := range c.machines {
		if !c.hidden[id] {
			all = append(all, m)
		}
	}
	return all, 1, c.listErr
}

func (c *fakeCloud) get(_ context.Context, id int) (machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	m, ok := c.machines[id]
	switch {
	case c.readErr != nil:
		return machine{}, c.readErr
	case !ok:
		return machine{}, &cloudapi.Error{Class: cloudapi.ErrNotFound}
	}
	return m, nil
}

func (c *fakeCloud) getMany(_ context.Context, ids []int) ([]machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches = append(c.batches, slices.Sorted(slices.Values(ids)))
	var all []machine
	for _, id := range ids {
		if m, ok := c.machines[id]; ok {
			all = append(all, m)
		}
	}
	return all, nil
}

type (
	description = Cloud[int, machine]
	source      = inventory.Source[int, machine]
	// change edits the cloud's description and the source of its machines for a test.
	change = func(*description, *source)
)

// fixture is a cloud with the answers about its nodes.
type fixture struct {
	cloud *fakeCloud
	view  *nodecount.Counter
	*Instances[int, machine]
}

// newFixture makes a cloud whose description and source tests may change.
func newFixture(edit change, machines ...machine) *fixture {
	f := &fixture{cloud: &fakeCloud{machines: map[int]machine{}, hidden: map[int]bool{}}, view: &nodecount.Counter{}}
	for _, m := range machines {
		f.cloud.machines[m.id] = m
	}
	read := source{
		Kind: "machine", ID: func(m machine) int { return m.id }, List: f.cloud.list, Get: f.cloud.get,
		Indexes: map[string]func(machine) []string{
			byNameIndex:    func(m machine) []string { return []string{m.name} },
			byAddressIndex: func(m machine) []string { return []string{m.address} },
		},
	}
	described := description{
		Kind: "machine", Nodes: f.view, Price: time.Second, Form: "fake://<machine ID>", Parse: parse,
		Print: func(m machine) string { return "fake://" + strconv.Itoa(m.id) },
		Search: func(_ context.Context, node *v1.Node) (Search[int, machine], error) {
			keys := []Key[machine]{{Index: byNameIndex, Value: node.Name}}
			for _, a := range node.Status.Addresses {
				keys = append(keys, Key[machine]{Index: byAddressIndex, Value: a.Address, Check: claimable})
			}
			return Search[int, machine]{Keys: keys}, nil
		},
		State: state, Metadata: metadataOf,
		Verify: func(_ context.Context, node *v1.Node, m machine) (string, error) {
			if m.name != node.Name {
				return "the machine is named " + m.name, nil
			}
			return "", nil
		},
	}
	if edit != nil {
		edit(&described, &read)
	}
	if read.BatchSize > 0 {
		read.GetMany = f.cloud.getMany
	}
	described.Inventory = inventory.New(read)
	f.Instances = New(described)
	return f
}

// parse accepts three forms of provider IDs.
func parse(text string) (int, error) {
	for _, prefix := range []string{"fake:///", "fake://", "old-"} {
		if number, ok := strings.CutPrefix(text, prefix); ok {
			id, err := strconv.Atoi(number)
			if err != nil {
				return 0, fmt.Errorf("provider ID %q: %w", text, err)
			}
			return id, nil
		}
	}
	return 0, fmt.Errorf("provider ID %q is malformed", text)
}

func claimable(m machine) error {
	if m.name == "taken" {
		return &cloudapi.Error{Class: cloudapi.ErrConflict, Message: "another node is that machine"}
	}
	return nil
}

func state(m machine) (State, error) {
	switch m.state {
	case "off":
		return ShutDown, nil
	case "terminated":
		return Terminated, nil
	case "untold":
		return Existing, &cloudapi.Error{Class: cloudapi.ErrNotFound, Message: "no state"} // the worst that a cloud can return here
	}
	return Existing, nil
}

func metadataOf(_ context.Context, _ *v1.Node, m machine, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	return &cloudprovider.InstanceMetadata{
		InstanceType: "small", NodeAddresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: m.address}},
	}, nil
}

func node(name, providerID string, change ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{ProviderID: providerID}}
	for _, c := range change {
		c(n)
	}
	return n
}

func uninitialized(n *v1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: cloudproviderapi.TaintExternalCloudProvider})
}

func address(ip string) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
}

func lister(all ...*v1.Node) listers.NodeLister {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, n := range all {
		_ = indexer.Add(n)
	}
	return listers.NewNodeLister(indexer)
}

var (
	web     = machine{1, "web", "10.0.0.1", "on"}
	off     = machine{2, "off", "10.0.0.2", "off"}
	ended   = machine{3, "ended", "10.0.0.3", "terminated"}
	untold  = machine{4, "untold", "10.0.0.4", "untold"}
	twin1   = machine{5, "twin", "10.0.0.5", "on"}
	twin2   = machine{6, "twin", "10.0.0.5", "on"}
	taken   = machine{7, "taken", "10.0.0.7", "on"}
	failure = &cloudapi.Error{Class: cloudapi.ErrTransient, Message: "the cloud is down"}
)

// withID is the remedy that always helps.
const withID = " start kubelet with --provider-id=fake://<machine ID>"

// searchByName describes a cloud whose nodes may have the ID of their instance as their name.
func searchByName(c *description, _ *source) {
	search := c.Search
	c.Search = func(ctx context.Context, node *v1.Node) (Search[int, machine], error) {
		if id, err := strconv.Atoi(strings.TrimPrefix(node.Name, "m-")); err == nil {
			return Search[int, machine]{IDs: []int{id}, Proves: true}, nil
		}
		if ids := map[string][]int{"myself": {99, 1}, "elsewhere": {98, 99}}[node.Name]; ids != nil {
			return Search[int, machine]{IDs: ids}, nil
		}
		return search(ctx, node)
	}
}

// wordless describes a cloud some of whose provider IDs name no instance.
func wordless(c *description, _ *source) {
	c.Names = func(providerID string) bool { return providerID != "fake" }
}

func TestExistsAndShutdown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node   *v1.Node
		change change
		exists bool
		err    string
		down   bool
	}{
		"by ID":                                {node: node("any", "fake://1"), exists: true},
		"by ID in another form":                {node: node("any", "fake:///1"), exists: true},
		"by ID in an old form":                 {node: node("any", "old-1"), exists: true},
		"by name":                              {node: node("web", ""), exists: true},
		"by address":                           {node: node("other", "", address("192.0.2.1"), address("10.0.0.1")), exists: true},
		"by the ID in its name":                {node: node("m-1", ""), change: searchByName, exists: true},
		"by the second ID that it can be":      {node: node("myself", ""), change: searchByName, exists: true},
		"by name, with an ID that says naught": {node: node("web", "fake"), change: wordless, exists: true},
		"shut down":                            {node: node("off", "fake://2"), exists: true, down: true},
		"shut down, by name":                   {node: node("off", ""), exists: true, down: true},

		"gone":                               {node: node("web", "fake://9")},
		"gone, by the ID in its name":        {node: node("m-9", ""), change: searchByName},
		"terminated":                         {node: node("ended", "fake://3")},
		"terminated, by name":                {node: node("ended", ""), err: "machine 3 is terminated, but node ended has no provider ID"},
		"terminated, by the ID in its name":  {node: node("m-3", ""), change: searchByName, err: "machine 3 is terminated, but"},
		"no state":                           {node: node("untold", "fake://4"), err: "no state"},
		"malformed ID":                       {node: node("web", "fake://x"), err: `provider ID "fake://x"`},
		"another cloud's ID":                 {node: node("web", "aws:///zone/i-1"), err: "is malformed"},
		"ID that says naught, no such name":  {node: node("nobody", "fake"), change: wordless, err: "no machine is named nobody"},
		"name of nobody":                     {node: node("nobody", ""), err: "no machine is named nobody; name the machine like the node, or" + withID},
		"name of two":                        {node: node("twin", ""), err: "2 machines are named twin; rename all but one, or" + withID + ": fake://"},
		"address of another node's instance": {node: node("thief", "", address("10.0.0.7")), err: "another node is that machine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(c.change, web, off, ended, untold, twin1, twin2, taken)
			exists, err := f.InstanceExists(t.Context(), c.node)
			assert.Equal(t, c.exists, exists)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			if exists {
				down, err := f.InstanceShutdown(t.Context(), c.node)
				require.NoError(t, err)
				assert.Equal(t, c.down, down)
			}
		})
	}
}

// TestErrorsAreNeverGone: whatever is not the cloud's "not found" about the instance of a Node proves nothing.
func TestErrorsAreNeverGone(t *testing.T) {
	t.Parallel()
	notFound := &cloudapi.Error{Class: cloudapi.ErrNotFound}
	for name, c := range map[string]struct {
		node   *v1.Node
		change change
		read   error
		list   error
	}{
		"a failed read":           {node: node("web", "fake://1"), read: failure, list: failure},
		"a failed read by name":   {node: node("web", ""), list: failure},
		"an unauthorized read":    {node: node("web", "fake://1"), read: &cloudapi.Error{Class: cloudapi.ErrUnauthorized}, list: failure},
		"an invalid read":         {node: node("web", "fake://9"), read: &cloudapi.Error{Class: cloudapi.ErrInvalid}},
		"a listing not found":     {node: node("web", ""), list: notFound},
		"a name not found":        {node: node("nobody", "")},
		"a candidate not found":   {node: node("elsewhere", ""), change: searchByName},
		"no way to find it":       {node: node("web", ""), change: func(c *description, _ *source) { c.Search = nil }},
		"a parser's not found":    {node: node("web", "fake://1"), change: failingParse(notFound)},
		"a search's not found":    {node: node("web", ""), change: failingSearch(notFound)},
		"a search that fails":     {node: node("web", ""), change: failingSearch(failure)},
		"a name without any ID":   {node: node("web", ""), change: emptyProof},
		"a check that finds none": {node: node("other", "", address("10.0.0.1")), change: failingCheck(notFound)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(c.change, web)
			f.cloud.readErr, f.cloud.listErr = c.read, c.list
			for _, ctx := range []context.Context{t.Context(), evidence.With(t.Context(), evidence.Proof(time.Now()))} {
				_, err := f.InstanceExists(ctx, c.node)
				require.Error(t, err, "the framework deletes Nodes without an error alone")
				_, err = f.InstanceShutdown(ctx, c.node)
				require.Error(t, err)
			}
		})
	}
}

func failingParse(err error) change {
	return func(c *description, _ *source) { c.Parse = func(string) (int, error) { return 0, err } }
}

func failingSearch(err error) change {
	return func(c *description, _ *source) {
		c.Search = func(context.Context, *v1.Node) (Search[int, machine], error) {
			return Search[int, machine]{Proves: true}, err
		}
	}
}

func emptyProof(c *description, _ *source) {
	c.Search = func(context.Context, *v1.Node) (Search[int, machine], error) {
		return Search[int, machine]{Proves: true}, nil
	}
}

func failingCheck(err error) change {
	return func(c *description, _ *source) {
		c.Search = func(context.Context, *v1.Node) (Search[int, machine], error) {
			return Search[int, machine]{Keys: []Key[machine]{{byAddressIndex, "10.0.0.1", func(machine) error { return err }, nil}}}, nil
		}
	}
}

// TestGoneByProof: a listing without the instance is no proof; a read of the instance is, and is not repeated for each question.
func TestGoneByProof(t *testing.T) {
	t.Parallel()
	f := newFixture(nil, web, off)
	f.cloud.hidden[1] = true
	exists, err := f.InstanceExists(t.Context(), node("web", "fake://1"))
	require.NoError(t, err)
	assert.True(t, exists, "it is missing from the listing alone")

	f = newFixture(nil, web)
	for range 3 {
		exists, err := f.InstanceExists(t.Context(), node("gone", "fake://9"))
		require.NoError(t, err)
		assert.False(t, exists)
	}
	assert.Equal(t, 3, f.cloud.reads, "each time that an instance is called gone, it was looked for")

	f = newFixture(searchByName, web)
	for range 3 {
		exists, err := f.InstanceExists(t.Context(), node("m-9", ""))
		require.NoError(t, err)
		assert.False(t, exists)
	}
	assert.Equal(t, 1, f.cloud.reads, "a name is remembered for a while, because nothing else makes it worth a read each")
	_, err = f.InstanceExists(evidence.With(t.Context(), evidence.Proof(time.Now())), node("m-9", ""))
	require.NoError(t, err)
	assert.Equal(t, 2, f.cloud.reads, "unless the caller demands a read")
}

func TestNeverShutDown(t *testing.T) {
	t.Parallel()
	f := newFixture(func(c *description, _ *source) { c.State = nil }, off)
	down, err := f.InstanceShutdown(t.Context(), node("off", "fake://2"))
	require.NoError(t, err)
	assert.False(t, down)
	assert.Zero(t, f.cloud.reads+f.cloud.lists, "nothing is asked")
	exists, err := f.InstanceExists(t.Context(), node("off", "fake://2"))
	require.NoError(t, err)
	assert.True(t, exists)
}

// TestAges: what nodes that are not ready cost grows with the pages of a listing, within bounds.
func TestAges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pages         int
		price, want   time.Duration
		least, within time.Duration
	}{
		"one page":           {1, time.Second, 10 * time.Second, 0, 0},
		"its own least age":  {1, time.Second, 15 * time.Second, 15 * time.Second, 0},
		"more pages":         {8, 2 * time.Second, 16 * time.Second, 15 * time.Second, 0},
		"very many":          {1000, time.Second, 45 * time.Second, 0, 0},
		"asked more often":   {1, time.Second, 2 * time.Second, 0, 2 * time.Second},
		"than is worth it":   {1, time.Millisecond, time.Second, 0, time.Millisecond},
		"than calls allow":   {8, time.Second, 8 * time.Second, 0, 2 * time.Second},
		"than the cloud has": {1, time.Second, 15 * time.Second, 15 * time.Second, 2 * time.Second},
		"asked less often":   {1, time.Second, 10 * time.Second, 0, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(func(d *description, s *source) {
				d.Price, d.MinAge = c.price, c.least
				s.List = func(context.Context) ([]machine, int, error) { return []machine{web}, c.pages, nil }
			})
			require.NoError(t, f.CheckAPI(t.Context()))
			ctx := evidence.With(t.Context(), evidence.Demand{Within: c.within})
			assert.Equal(t, c.want, f.existsQuery(ctx).MaxAge)
		})
	}
}

// TestAgesOfWhatTakesLong: who asks often gets no listing that begins before the one before has served, and no read for each node where
// nothing is listed.
func TestAgesOfWhatTakesLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const took = 3 * time.Second
		ctx := evidence.With(t.Context(), evidence.Demand{Within: 2 * time.Second})
		f := newFixture(func(_ *description, s *source) {
			s.List = func(context.Context) ([]machine, int, error) {
				time.Sleep(took) // in virtual time
				return []machine{web}, 1, nil
			}
		})
		require.NoError(t, f.CheckAPI(t.Context()))
		assert.Equal(t, 2*took, f.existsQuery(ctx).MaxAge)
		f = newFixture(func(_ *description, s *source) { s.List = nil })
		assert.Equal(t, minExistsAge, f.existsQuery(ctx).MaxAge)
	})
}

func TestCheckAPI(t *testing.T) {
	t.Parallel()
	f := newFixture(nil, web)
	require.NoError(t, f.CheckAPI(t.Context()))
	_, err := f.InstanceMetadata(t.Context(), node("web", "", uninitialized))
	require.NoError(t, err)
	assert.Equal(t, 1, f.cloud.lists, "the check also answers the first question")
	f = newFixture(nil)
	f.cloud.listErr = failure
	require.ErrorContains(t, f.CheckAPI(t.Context()), "the cloud is down")
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	f := newFixture(nil, web)
	for _, n := range []*v1.Node{node("web", ""), node("any", "old-1"), node("any", "fake://1", uninitialized)} {
		m, err := f.InstanceMetadata(t.Context(), n)
		require.NoError(t, err)
		assert.Equal(t, &cloudprovider.InstanceMetadata{
			ProviderID: "fake://1", InstanceType: "small", NodeAddresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}},
		}, m)
	}
	for _, n := range []*v1.Node{node("nobody", ""), node("nobody", "fake://9")} {
		_, err := f.InstanceMetadata(t.Context(), n)
		require.ErrorIs(t, err, cloudprovider.InstanceNotFound)
		require.ErrorContains(t, err, "node nobody: ")
	}
	f.cloud.readErr, f.cloud.listErr = failure, failure
	_, err := f.InstanceMetadata(t.Context(), node("other", "fake://8"))
	require.ErrorIs(t, err, cloudapi.ErrTransient)
	require.NotErrorIs(t, err, cloudprovider.InstanceNotFound)

	f = newFixture(func(c *description, _ *source) {
		c.Metadata = func(_ context.Context, n *v1.Node, _ machine, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
			if n.Name == "kept" {
				return &cloudprovider.InstanceMetadata{ProviderID: n.Spec.ProviderID}, nil
			}
			return nil, &cloudapi.Error{Class: cloudapi.ErrNotFound, Message: "the network of the machine"}
		}
	}, web)
	m, err := f.InstanceMetadata(t.Context(), node("kept", "old-1"))
	require.NoError(t, err)
	assert.Equal(t, "old-1", m.ProviderID, "a cloud may keep the form that a Node has")
	_, err = f.InstanceMetadata(t.Context(), node("web", ""))
	require.ErrorContains(t, err, "the network of the machine")
	require.NotErrorIs(t, err, cloudprovider.InstanceNotFound, "something else is missing than the machine")
	_, err = f.Describe(t.Context(), node("web", ""), inventory.Query{})
	require.NotErrorIs(t, err, cloudapi.ErrNotFound)
}

// lacksAddress is a machine without an address, whose metadata may be usable all the same.
func lacksAddress(usable bool, refresh func(context.Context) error) *Incomplete {
	i := &Incomplete{Reason: "it has no address", Refresh: refresh}
	if usable {
		i.Metadata = &cloudprovider.InstanceMetadata{}
	}
	return i
}

// TestIncomplete: a machine may have been listed while it was created, so it is read again, once, before that is an error.
func TestIncomplete(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node        *v1.Node
		completedBy string // "read", "refresh" or "" for never
		usable      bool
		refreshErr  error
		want        string // the address
		err         string
	}{
		"complete at the next read":         {node: node("web", "fake://1", uninitialized), completedBy: "read", want: "10.0.0.1"},
		"complete after a refresh":          {node: node("web", "fake://1"), completedBy: "refresh", want: "10.0.0.1"},
		"never complete":                    {node: node("web", "fake://1"), err: "node web: it has no address"},
		"usable, but not for a new Node":    {node: node("web", "fake://1", uninitialized), usable: true, err: "node web: it has no address"},
		"usable for a Node that is old":     {node: node("web", "fake://1"), usable: true},
		"a refresh that fails":              {node: node("web", "fake://1"), refreshErr: failure, err: "the cloud is down"},
		"a refresh that does not find":      {node: node("web", "fake://1"), refreshErr: &cloudapi.Error{Class: cloudapi.ErrNotFound, Message: "VPC"}, err: "VPC"},
		"by name, never complete":           {node: node("web", ""), err: "it has no address"},
		"gone when it is read again, by ID": {node: node("web", "fake://1"), completedBy: "gone", err: "instance not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refreshed := 0
			var f *fixture
			f = newFixture(func(d *description, _ *source) {
				d.Metadata = func(_ context.Context, _ *v1.Node, m machine, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
					if m.address != "" || (c.completedBy == "refresh" && refreshed > 0) {
						return &cloudprovider.InstanceMetadata{NodeAddresses: []v1.NodeAddress{{Address: "10.0.0.1"}}}, nil
					}
					return nil, lacksAddress(c.usable, func(context.Context) error {
						refreshed++
						f.complete(c.completedBy)
						return c.refreshErr
					})
				}
			}, machine{id: 1, name: "web"})
			require.NoError(t, f.CheckAPI(t.Context()))
			m, err := f.InstanceMetadata(t.Context(), c.node)
			assert.Equal(t, 1, refreshed)
			if c.node.Spec.ProviderID != "" {
				assert.LessOrEqual(t, f.cloud.reads+f.cloud.lists, 2)
			}
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				if c.completedBy != "gone" {
					require.NotErrorIs(t, err, cloudprovider.InstanceNotFound)
				}
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "fake://1", m.ProviderID)
			if c.want != "" {
				assert.Equal(t, c.want, m.NodeAddresses[0].Address)
			}
		})
	}
}

func (f *fixture) complete(how string) {
	f.cloud.mu.Lock()
	defer f.cloud.mu.Unlock()
	switch how {
	case "read":
		f.cloud.machines[1] = web
	case "gone":
		delete(f.cloud.machines, 1)
	}
}

// TestDescribe: questions of the cloud's own take what there is.
func TestDescribe(t *testing.T) {
	t.Parallel()
	f := newFixture(func(c *description, _ *source) {
		c.Metadata = func(_ context.Context, _ *v1.Node, m machine, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
			if m.id == off.id {
				return nil, &Incomplete{Reason: "nothing is known"}
			}
			return nil, &Incomplete{Reason: "no address", Metadata: &cloudprovider.InstanceMetadata{InstanceType: "small"}}
		}
	}, web, off)
	m, err := f.Describe(t.Context(), node("web", ""), inventory.Query{})
	require.NoError(t, err)
	assert.Equal(t, &cloudprovider.InstanceMetadata{ProviderID: "fake://1", InstanceType: "small"}, m)
	_, err = f.Describe(t.Context(), node("off", ""), inventory.Query{})
	require.ErrorContains(t, err, "nothing is known")
	_, err = f.Describe(t.Context(), node("gone", "fake://9"), inventory.Query{})
	require.ErrorIs(t, err, cloudapi.ErrNotFound)
	found, err := f.Find(t.Context(), node("web", ""), inventory.Query{MaxAge: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, web, found)
}

// TestPrefetch: where one call reads several instances, those of other nodes that are about to be asked for go along.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	f := newFixture(func(c *description, s *source) {
		searchByName(c, s)
		s.List, s.BatchSize = nil, 10
	}, web, off, twin1, taken, machine{8, "known", "10.0.0.8", "on"})
	f.Instances.cloud.Inventory.Put(machine{8, "known", "10.0.0.8", "on"})
	f.Instances.cloud.Inventory.Invalidate(8)
	first, down := node("web", "fake://1", uninitialized), node("off", "fake://2")
	f.view.SetLister(lister(first, down, node("m-5", "", uninitialized), node("known", "", uninitialized), node("nobody", "", uninitialized),
		node("malformed", "fake://x", uninitialized), node("ready", "fake://7", func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		})))
	_, err := f.InstanceMetadata(t.Context(), first)
	require.NoError(t, err)
	exists, err := f.InstanceExists(t.Context(), down)
	require.NoError(t, err)
	assert.True(t, exists)
	assert.Equal(t, [][]int{{1, 5, 8}, {2}}, f.cloud.batches, "new nodes with new ones, and what is known is not read again")
	assert.Zero(t, f.cloud.reads)
	assert.ElementsMatch(t, []int{1, 5, 8}, f.Uninitialized(t.Context()))
}

// TestNewNodesGather: without such reads, new nodes wait for each other instead.
func TestNewNodesGather(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{0, 10} {
		var asked []inventory.Query
		f := newFixture(func(c *description, s *source) {
			s.BatchSize = batch
			c.Metadata = func(_ context.Context, _ *v1.Node, _ machine, q inventory.Query) (*cloudprovider.InstanceMetadata, error) {
				asked = append(asked, q)
				return &cloudprovider.InstanceMetadata{}, nil
			}
		}, web, off)
		first, second := node("web", "fake://1", uninitialized), node("off", "fake://2")
		f.view.SetLister(lister(first, second))
		for _, n := range []*v1.Node{first, second} {
			_, err := f.InstanceMetadata(t.Context(), n)
			require.NoError(t, err)
		}
		assert.Equal(t, []inventory.Query{
			{MaxAge: SweepMaxAge, MaxMissAge: MissMaxAge, Expected: 1, Uninitialized: batch == 0},
			{MaxAge: SweepMaxAge, MaxMissAge: MissMaxAge, Expected: 2, PerSingle: time.Second},
		}, asked)
	}
}

// TestSplit: two kinds of instances in one cloud.
func TestSplit(t *testing.T) {
	t.Parallel()
	common := newFixture(nil, web)
	other := newFixture(func(c *description, _ *source) { c.Kind, c.Verify = "pod", nil }, off)
	s := Split{API: common, IsOther: func(n *v1.Node) bool { return strings.HasPrefix(n.Spec.ProviderID, "old-") }, Other: other}
	require.NoError(t, s.CheckAPI(t.Context()))
	assert.Equal(t, []int{1, 0}, []int{common.cloud.lists, other.cloud.lists})
	for id, want := range map[string]struct {
		exists, down, verified bool
		err                    error
	}{
		"fake://1": {exists: true, verified: true},
		"fake://2": {err: cloudprovider.InstanceNotFound},
		"old-2":    {exists: true, down: true},
		"old-1":    {err: cloudprovider.InstanceNotFound},
	} {
		n := node("web", id)
		exists, err := s.InstanceExists(t.Context(), n)
		require.NoError(t, err)
		assert.Equal(t, want.exists, exists, id)
		down, _ := s.InstanceShutdown(t.Context(), n)
		assert.Equal(t, want.down, down, id)
		_, err = s.InstanceMetadata(t.Context(), n)
		require.ErrorIs(t, err, want.err, id)
		ok, _, err := s.VerifyInstance(t.Context(), n)
		require.NoError(t, err)
		assert.Equal(t, want.verified, ok, id)
	}
}
