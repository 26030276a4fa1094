package photon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// pageSize is the API's maximum.
	pageSize = 100
	// restarts limits how often a listing starts again after its pages expired.
	restarts = 3
	// callPrice limits reads of nodes that stay down to one in five seconds.
	callPrice = 5 * time.Second

	stateDeleted = "DELETED"
)

type vm struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	State      string `json:"state"`
	Flavor     string `json:"flavor"`
	FloatingIP string `json:"floatingIp"`

	Tags []string `json:"tags"`
}

type instances struct {
	*nodes.Instances[string, vm]
	api       *api
	inventory *inventory.Inventory[string, vm]
	networks  *inventory.Inventory[string, networks]
	nodes     *nodecount.Counter
}

func newInstances(a *api) *instances {
	i := &instances{api: a, nodes: &nodecount.Counter{}}
	i.inventory = inventory.New(inventory.Source[string, vm]{
		Kind: "virtual machine", ID: func(v vm) string { return v.ID }, List: a.vms, Get: i.read,
		Indexes: nodes.NameIndexes(func(v vm) string { return v.Name }),
	})
	i.networks = inventory.New(inventory.Source[string, networks]{Kind: "networks", ID: func(n networks) string { return n.ID }, Get: a.networks})
	i.Instances = nodes.New(nodes.Cloud[string, vm]{
		Kind: "virtual machine", Nodes: i.nodes, Price: callPrice, Inventory: i.inventory,
		Form: providerIDPrefix + "<VM ID>", Parse: parseProviderID, Print: func(v vm) string { return providerIDPrefix + v.ID },
		Names:  func(providerID string) bool { return providerID != providerIDPrefix },
		Search: i.search, State: i.state, Metadata: i.describe, Verify: i.verify,
		Tags:       func(v vm) map[string]string { return nodes.BareTags(v.Tags) },
		Unattested: "its addresses are what its guest reports",
	})
	return i
}

// page is one page of a listing.
type page struct {
	Items *[]vm  `json:"items"`
	Next  string `json:"nextPageLink"`
}

// vms lists the virtual machines of the project. If pages expire, it starts again.
func (a *api) vms(ctx context.Context) (all []vm, calls int, err error) {
	for range restarts {
		var made int
		all, made, err = a.listOnce(ctx)
		calls += made
		if codeOf(err) != codePageExpired {
			break
		}
	}
	return all, calls, err
}

func (a *api) listOnce(ctx context.Context) (all []vm, calls int, err error) {
	const what = "listing virtual machines"
	ctx, listing := cloudapi.WatchListing(ctx)
	path := fmt.Sprintf("/projects/%s/vms?pageSize=%d", url.PathEscape(a.config.Project), pageSize)
	for calls = 1; ; calls++ {
		var p page
		if err = cloudapi.NotAbsence(a.get(ctx, what, path, &p)); err == nil && p.Items == nil {
			err = cloudapi.Unclear(what, "the answer is not that of the API; %s", checkAddress)
		}
		if err == nil {
			err = listing.Add(len(*p.Items))
		}
		if err != nil {
			return nil, calls, err
		}
		for _, v := range *p.Items {
			if v.State != stateDeleted { // deleted ones are listed for a while
				all = append(all, v)
			}
		}
		if p.Next == "" {
			return all, calls, nil
		}
		if err := listing.Turn(p.Next); err != nil {
			return nil, calls, err
		}
		next, err := url.Parse(p.Next)
		if err != nil || !strings.HasPrefix(next.Path, "/") || next.IsAbs() || next.Host != "" {
			return nil, calls, cloudapi.Unclear(what, "the link to the next page does not belong to this API")
		}
		path = next.RequestURI()
	}
}

// read reads one virtual machine. It returns cloudapi.ErrNotFound only if the machine is proved to be missing.
func (i *instances) read(ctx context.Context, id string) (v vm, err error) {
	what := "reading virtual machine " + id
	err = i.api.get(ctx, what, "/vms/"+url.PathEscape(id), &v)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound), err == nil && v.ID == id && v.State == stateDeleted:
		return vm{}, i.inventory.Prove(ctx, id, func(all []vm) error { return i.checkAbsence(ctx, id, all) })
	case err == nil && v.ID != id:
		return vm{}, cloudapi.Unclear(what, "the answer is about another virtual machine")
	case err == nil && slices.ContainsFunc(i.nodesWithID(id), func(n *v1.Node) bool { return n.Name != v.Name }):
		_, err = i.inventory.All(ctx, inventory.Query{MaxAge: nodes.SweepMaxAge}) // for mistaken
	}
	return v, cloudapi.NotAbsence(err)
}

// nodesWithID returns the Nodes with the ID of a virtual machine.
func (i *instances) nodesWithID(id string) (list []*v1.Node) {
	for _, n := range i.nodes.Nodes() {
		if n.Spec.ProviderID == providerIDPrefix+id {
			list = append(list, n)
		}
	}
	return list
}

// explainMismatch explains why a virtual machine is not that of a Node with its ID: kubelets get IDs by hand, and another machine has the
// Node's name, or the address that it is named after.
func (i *instances) explainMismatch(id string, n *v1.Node) error {
	own, by := i.inventory.PeekIndex(nodes.IndexLowerName, strings.ToLower(n.Name)), "name"
	if i.api.config.OverrideIP {
		by = "address"
		own = slices.DeleteFunc(i.inventory.PeekAll(), func(v vm) bool {
			known, _ := i.networks.Peek(v.ID)
			return !known.hasAddress(n.Name)
		})
	}
	if len(own) == 0 || slices.ContainsFunc(own, func(v vm) bool { return v.ID == id }) {
		return nil
	}
	return cloudapi.Unclear("looking for virtual machine "+id, "it is not that of its Node, for virtual machine %s has the %s of its Node %s; correct vmID in the "+
		"cloud config of its kubelet, and delete the Node", own[0].ID, by, n.Name)
}

// candidate returns another virtual machine that may belong to an address-named Node: no Node has its ID, and its networks are unknown or
// do not suffice to rule it out.
func (i *instances) candidate(id string, suffices func(networks) bool) (v vm, found bool) {
	all := i.inventory.PeekAll()
	at := slices.IndexFunc(all, func(v vm) bool {
		known, asked := i.networks.Peek(v.ID)
		return v.ID != id && (!asked || !suffices(known)) && len(i.nodesWithID(v.ID)) == 0
	})
	if at < 0 {
		return vm{}, false
	}
	return all[at], true
}

// checkAbsence explains why a missing virtual machine may still exist: it may not be that of a Node with its ID, or nothing is listed and
// the project cannot be read.
func (i *instances) checkAbsence(ctx context.Context, id string, all []vm) error {
	for _, n := range i.nodesWithID(id) {
		ip, notAddress := netip.ParseAddr(n.Name)
		named := i.api.config.OverrideIP && notAddress == nil
		if named {
			if _, err := i.idsWithAddress(ctx, ip, all); err != nil {
				return err
			}
		}
		if err := i.explainMismatch(id, n); err != nil {
			return err
		}
		if v, found := i.candidate(id, func(n networks) bool { return len(n.ips()) > 0 }); found && named {
			return fmt.Errorf("virtual machine %s, of which no address is known, may be that of Node %s", v.ID, n.Name)
		}
	}
	var project struct {
		ID string `json:"id"`
	}
	if len(all) == 0 {
		if err := i.api.get(ctx, "reading the project", "/projects/"+url.PathEscape(i.api.config.Project), &project); err != nil || project.ID == "" {
			return fmt.Errorf("neither is anything else in project %s found (%w); check project", i.api.config.Project, err)
		}
	}
	return nil
}

// search finds the virtual machine of a node without an ID: by name, or by the address that the node is named after.
func (i *instances) search(ctx context.Context, node *v1.Node) (nodes.Search[string, vm], error) {
	if !i.api.config.OverrideIP {
		return nodes.Search[string, vm]{
			Keys:    nodes.NameKeys[vm](node),
			None:    "No matching started VM is found with name " + node.Name + "; name the virtual machine like the node, or",
			Several: "%d virtual machines are named " + node.Name + "; rename all but one, or",
		}, nil
	}
	ip, err := netip.ParseAddr(node.Name)
	if err != nil {
		return nodes.Search[string, vm]{}, fmt.Errorf("node %s is not named after an address, which overrideIP asks for", node.Name)
	}
	all, err := i.inventory.All(ctx, inventory.Query{MaxAge: missingMaxAge})
	if err != nil {
		return nodes.Search[string, vm]{}, err
	}
	ids, err := i.idsWithAddress(ctx, ip, all)
	switch {
	case err != nil:
		return nodes.Search[string, vm]{}, err
	case len(ids) == 0:
		return nodes.Search[string, vm]{}, fmt.Errorf("no virtual machine reports the address %s; start VMware Tools in it", ip)
	case len(ids) > 1:
		return nodes.Search[string, vm]{}, fmt.Errorf("the virtual machines %s have the address %s", strings.Join(ids, ", "), ip)
	}
	return nodes.Search[string, vm]{IDs: ids}, nil
}

// state maps the cloud's state. A machine in ERROR may be running.
func (i *instances) state(v vm) (nodes.State, error) {
	down := v.State == "SUSPENDED" || v.State == "STOPPED"
	for _, n := range i.nodesWithID(v.ID) {
		if err := i.explainMismatch(v.ID, n); err != nil {
			return nodes.Existing, err
		}
		other, found := i.candidate(v.ID, func(networks) bool { return true })
		if known, _ := i.networks.Peek(v.ID); down && found && i.api.config.OverrideIP && !known.hasAddress(n.Name) {
			return nodes.Existing, &nodes.Incomplete{Reason: fmt.Sprintf("virtual machine %s, whose networks are not known yet, may be that of Node %s", other.ID, n.Name)}
		}
	}
	if down {
		return nodes.ShutDown, nil
	}
	return nodes.Existing, nil
}

func (i *instances) describe(ctx context.Context, node *v1.Node, v vm, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	c := i.api.config
	if !strings.EqualFold(node.Name, v.Name) && !c.OverrideIP {
		q := inventory.Query{MaxAge: nodes.SweepMaxAge, MaxMissAge: nodes.SweepMaxAge}
		if _, err := i.inventory.Find(ctx, nodes.IndexLowerName, strings.ToLower(node.Name), q); err != nil {
			return nil, err
		}
		if err := i.explainMismatch(v.ID, node); err != nil {
			return nil, err
		}
	}
	m := &cloudprovider.InstanceMetadata{ProviderID: providerIDPrefix + v.ID, Zone: c.Zone, Region: c.Region}
	if c.FlavorLabel {
		m.InstanceType = nodes.LabelValue(v.Flavor)
	}
	n, err := i.networksOf(ctx, v.ID)
	if ip, _ := netip.ParseAddr(node.Name); c.OverrideIP && !n.hasAddress(node.Name) {
		if all, listErr := i.inventory.All(ctx, inventory.Query{MaxAge: nodes.SweepMaxAge}); listErr == nil {
			_, _ = i.idsWithAddress(ctx, ip, all) // best effort, for mistaken
		}
	}
	if err == nil {
		m.NodeAddresses, err = i.addresses(v, n, node)
	}
	if err != nil && contract.Uninitialized(node) {
		return nil, err
	}
	return m, nil // the Node keeps its addresses
}

// addresses returns a node's addresses in the order of interfaces; the one given to the kubelet comes first.
func (i *instances) addresses(v vm, n networks, node *v1.Node) ([]v1.NodeAddress, error) {
	ips, lacks := nodes.GivenFirst(node, n.ips())
	missing := ""
	switch {
	case len(n.ips()) == 0:
		missing = fmt.Sprintf("virtual machine %s (%s, state %s) has no address yet; start VMware Tools in it", v.Name, v.ID, v.State)
	case i.api.config.OverrideIP && !n.hasAddress(node.Name) && v.FloatingIP != node.Name:
		missing = fmt.Sprintf("virtual machine %s does not have the address that the Node is named after; it has %s; correct vmID in the cloud config of its kubelet",
			v.ID, n.ips())
	case lacks.IsValid():
		missing = fmt.Sprintf("kubelet was started with --node-ip=%s, which virtual machine %s does not have; it has %s", lacks, v.ID, n.ips())
	}
	if missing != "" {
		return nil, &nodes.Incomplete{Reason: missing}
	}
	list := []v1.NodeAddress{{Type: v1.NodeHostName, Address: node.Name}}
	add := func(kind v1.NodeAddressType, ip netip.Addr) {
		if a := (v1.NodeAddress{Type: kind, Address: ip.String()}); !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	for _, ip := range ips {
		kind := v1.NodeInternalIP
		if i.api.config.LegacyAddressTypes && n.isVMware(ip) {
			kind = v1.NodeExternalIP
		}
		add(kind, ip)
	}
	if ip, err := netip.ParseAddr(v.FloatingIP); err == nil {
		add(v1.NodeExternalIP, ip)
	}
	return list, nil
}

// isVMware reports whether the address's interface has a MAC address of VMware.
func (n networks) isVMware(ip netip.Addr) bool {
	return slices.ContainsFunc(n.Connections, func(c connection) bool {
		mac := strings.ToLower(c.MAC)
		return c.IP == ip.String() && (strings.HasPrefix(mac, "00:50:56") || strings.HasPrefix(mac, "00:0c:29"))
	})
}

// verify compares the API's name of the machine, which no guest can change, with the node's. Nodes named after an address have no such
// name.
func (i *instances) verify(_ context.Context, node *v1.Node, v vm) (why string, err error) {
	switch {
	case strings.EqualFold(v.Name, node.Name):
		return "", nil
	case i.api.config.OverrideIP:
		return "nodes that are named after addresses cannot be verified", nil
	}
	return fmt.Sprintf("the virtual machine %s is named %q", v.ID, v.Name), nil
}
