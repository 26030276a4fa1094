package ibm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// callPrice is the time per call for permanently failed nodes.
	callPrice = 2 * time.Second
	indexName = "name"

	labelPrefix     = "ibm-cloud.kubernetes.io/"
	labelInternalIP = labelPrefix + "internal-ip"
	labelExternalIP = labelPrefix + "external-ip"
	labelWorker     = labelPrefix + "worker-id"
	labelType       = labelPrefix + "machine-type"
	labelZone       = labelPrefix + "zone"
	labelRegion     = labelPrefix + "region"

	statusStopped = "stopped"
	notYetChosen  = "0.0.0.0"
)

// address is an IP address in the API.
type address struct {
	Address string `json:"address"`
}

// attachment is a network attachment, or an interface.
type attachment struct {
	PrimaryIP address `json:"primary_ip"`
}

// reference is a reference to an object.
type reference struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

func idsOf(list []reference) (ids []string) {
	for _, n := range list {
		ids = append(ids, n.ID)
	}
	return ids
}

func references(ids []string) (list []reference) {
	for _, id := range ids {
		list = append(list, reference{ID: id})
	}
	return list
}

// instance holds the fields of a virtual server instance that we use.
type instance struct {
	ID         string      `json:"id"`
	Name       string      `json:"name"`
	Status     string      `json:"status"`
	Profile    reference   `json:"profile"`
	Zone       reference   `json:"zone"`
	VPC        reference   `json:"vpc"`
	Attachment *attachment `json:"primary_network_attachment"`
	Interface  *attachment `json:"primary_network_interface"`
}

// ip returns the primary address; "" before one is assigned.
func (i instance) ip() string {
	for _, a := range []*attachment{i.Attachment, i.Interface} {
		if a != nil && a.PrimaryIP.Address != "" && a.PrimaryIP.Address != notYetChosen {
			return a.PrimaryIP.Address
		}
	}
	return ""
}

// instances reads the virtual server instances of the cluster's VPC, the source of nodes' metadata together with labels.
type instances struct {
	nodes.Split
	found     *nodes.Instances[string, instance]
	api       *api
	config    Config
	inventory *inventory.Inventory[string, instance]
	// listings holds complete listings only: single reads must not confirm one that is empty by mistake.
	listings *inventory.Inventory[string, instance]
	subnets  *inventory.Inventory[string, subnet]
	nodes    *nodecount.Counter
	// kube writes a condition of Nodes; nil writes none.
	kube kubernetes.Interface
}

func newInstances(a *api) *instances {
	i := &instances{api: a, config: a.config, nodes: &nodecount.Counter{}}
	i.inventory = inventory.New(inventory.Source[string, instance]{
		Kind: "instance", ID: func(v instance) string { return v.ID }, List: a.instances, Get: i.read,
		Indexes: map[string]func(instance) []string{indexName: func(v instance) []string { return []string{v.Name} }},
	})
	i.listings = inventory.New(inventory.Source[string, instance]{Kind: "instance", ID: func(v instance) string { return v.ID }, List: a.instances})
	i.subnets = inventory.New(inventory.Source[string, subnet]{Kind: "subnet", ID: func(v subnet) string { return v.ID }, List: a.subnets})
	i.found = nodes.New(nodes.Cloud[string, instance]{
		Kind: "instance", Nodes: i.nodes, Price: callPrice, Inventory: i.inventory,
		Form: providerIDPrefix + "<account>///<cluster>/<instance ID>", Parse: i.parse, Print: i.printProviderID,
		Search: search, State: instance.state, Metadata: i.describe, Verify: verify, Attested: instance.attested,
	})
	i.Split = nodes.Split{IsOther: func(n *v1.Node) bool { return !i.canAnswer(n) }, Other: nodes.Unmanaged{}, API: i.found}
	return i
}

// instances lists the instances of the VPC.
func (a *api) instances(ctx context.Context) ([]instance, int, error) {
	return list[instance](ctx, a, "instances", "/instances", url.Values{"vpc.name": {a.config.VPC}})
}

// proofMaxAge lets questions about several instances, each with a single read, share the listings that prove their absence.
const proofMaxAge = 2 * time.Second

// read reads one instance. The API also reports "not found" without permission, so absence needs a listing that shows other instances, or
// else the VPC's subnets.
func (i *instances) read(ctx context.Context, id string) (v instance, err error) {
	what := "reading instance " + id
	err = i.api.call(ctx, request{what: what, method: http.MethodGet, path: "/instances/" + id}, &v)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		if doubt := i.checkAbsence(ctx, id); doubt != nil {
			return v, cloudapi.Unclear(what, "it is not found, which does not prove that it is gone: %s", doubt)
		}
	case err == nil && v.ID != id:
		err = cloudapi.Unclear(what, "the answer is about another instance")
	}
	return v, err
}

// checkAbsence says why a missing instance may exist nevertheless.
func (i *instances) checkAbsence(ctx context.Context, id string) error {
	all, err := i.listings.All(ctx, inventory.Query{MaxAge: proofMaxAge})
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(all, func(v instance) bool { return v.ID == id }):
		return errors.New("it is listed")
	case len(all) > 0:
		return nil
	}
	return i.seesVPC(ctx, proofMaxAge)
}

// inVPC reports whether a load balancer is in the VPC of the cluster.
func (i *instances) inVPC(ctx context.Context, lb *loadBalancer) (bool, error) {
	for _, age := range []time.Duration{subnetsMaxAge, observedMaxAge} {
		all, err := i.subnets.All(ctx, inventory.Query{MaxAge: age})
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(lb.Subnets, func(n reference) bool {
			return slices.ContainsFunc(all, func(s subnet) bool { return s.ID == n.ID })
		}) {
			return true, nil
		}
	}
	return false, nil
}

// vpc is the ID of the cluster's VPC.
func (i *instances) vpc(ctx context.Context) (string, error) {
	all, err := i.subnets.All(ctx, inventory.Query{MaxAge: subnetsMaxAge})
	if err == nil && (len(all) == 0 || all[0].VPC.ID == "") {
		err = cloudapi.Unclear("looking for the VPC", "no subnet says which it is")
	}
	if err != nil {
		return "", err
	}
	return all[0].VPC.ID, nil
}

// seesVPC returns an error if the credential sees nothing of the cluster's VPC, so that missing objects may exist.
func (i *instances) seesVPC(ctx context.Context, maxAge time.Duration) error {
	subnets, err := i.subnets.All(ctx, inventory.Query{MaxAge: maxAge})
	if err == nil && len(subnets) == 0 {
		err = errors.New("the credential sees nothing of VPC " + i.config.VPC + " any more; check its account and its rights")
	}
	return err
}

var instanceID = regexp.MustCompile(`^[0-9a-z]{4}_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// splitProviderID splits ibm://<account>///<cluster>/<worker>.
func splitProviderID(providerID string) (account, cluster, worker string, ok bool) {
	rest, ok := strings.CutPrefix(providerID, providerIDPrefix)
	fields := strings.Split(rest, "/")
	if !ok || len(fields) != 5 {
		return "", "", "", false
	}
	return fields[0], fields[3], fields[4], true
}

// parse returns the ID of the instance in a provider ID.
func (i *instances) parse(providerID string) (string, error) {
	account, cluster, worker, ok := splitProviderID(providerID)
	if !ok || account != i.config.Account || cluster != i.config.Cluster || !instanceID.MatchString(worker) {
		return "", fmt.Errorf("provider ID %q is not of the form %s%s///%s/<instance ID>", providerID, providerIDPrefix, i.config.Account, i.config.Cluster)
	}
	return worker, nil
}

func (i *instances) printProviderID(v instance) string {
	return providerIDPrefix + i.config.Account + "///" + i.config.Cluster + "/" + v.ID
}

// canAnswer reports whether a node's instance can be read. Nodes of IBM's own account or of another cluster cannot be judged, and count as
// existing.
func (i *instances) canAnswer(n *v1.Node) bool {
	if !i.config.OwnWorkers() {
		return false
	}
	if n.Spec.ProviderID == "" {
		return true
	}
	account, cluster, worker, ok := splitProviderID(n.Spec.ProviderID)
	switch {
	case !strings.HasPrefix(n.Spec.ProviderID, providerIDPrefix):
		return false
	case !ok:
		return true // the read returns the error
	}
	return account == i.config.Account && cluster == i.config.Cluster && instanceID.MatchString(worker)
}

// InstanceMetadata describes a node by its instance, or by its labels if the instance cannot be read.
func (i *instances) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	if err := i.markNetworkUnavailable(ctx, node); err != nil {
		return nil, err
	}
	if i.canAnswer(node) {
		return i.Split.InstanceMetadata(ctx, node)
	}
	m := i.metadataFromLabels(node)
	if m == nil {
		return nil, fmt.Errorf("node %s lacks labels: it needs %s, because its instance cannot be read: g2workerServiceAccountID is not accountID, "+
			"or its provider ID names no instance of this cluster", node.Name, strings.Join(requiredLabels(), ", "))
	}
	return m, nil
}

func requiredLabels() []string {
	return []string{labelInternalIP, labelWorker, labelType, labelZone, labelRegion}
}

// metadataFromLabels builds the metadata of a node from its labels; nil if a required label is missing.
func (i *instances) metadataFromLabels(node *v1.Node) *cloudprovider.InstanceMetadata {
	for _, key := range requiredLabels() {
		if node.Labels[key] == "" {
			return nil
		}
	}
	if _, err := netip.ParseAddr(node.Labels[labelInternalIP]); err != nil {
		return nil
	}
	m := &cloudprovider.InstanceMetadata{
		ProviderID: node.Spec.ProviderID, InstanceType: node.Labels[labelType], Zone: node.Labels[labelZone], Region: node.Labels[labelRegion],
		NodeAddresses: i.addresses(node, node.Labels[labelInternalIP]),
	}
	if m.ProviderID == "" {
		m.ProviderID = i.printProviderID(instance{ID: node.Labels[labelWorker]})
	}
	return m
}

// addresses returns the internal address, and the external one from a label. IBM's own controller shows the internal one in place of a
// missing external one.
func (i *instances) addresses(node *v1.Node, internal string) []v1.NodeAddress {
	list := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: internal}}
	external := node.Labels[labelExternalIP]
	if _, err := netip.ParseAddr(external); err != nil {
		external = ""
	}
	if external == "" && i.config.FakedExternalIP {
		external = internal
	}
	if external != "" {
		list = append(list, v1.NodeAddress{Type: v1.NodeExternalIP, Address: external})
	}
	return list
}

// attested leaves out the external address, which only a label of the Node shows.
func (i instance) attested() contract.Attested {
	return contract.Attested{Names: []string{i.Name}, Addresses: contract.AttestedAddresses(i.ip())}
}

// search finds the instance of a node without a provider ID by its name.
func search(_ context.Context, node *v1.Node) (nodes.Search[string, instance], error) {
	return nodes.Search[string, instance]{Keys: []nodes.Key[instance]{{Index: indexName, Value: node.Name}}}, nil
}

// state maps an instance's status: only stopped counts as shut down.
func (i instance) state() (nodes.State, error) {
	switch i.Status {
	case "":
		return nodes.Existing, cloudapi.Unclear("reading instance "+i.ID, "the answer does not say its status")
	case statusStopped:
		return nodes.ShutDown, nil
	}
	return nodes.Existing, nil
}

// describe returns a node's metadata from its instance.
func (i *instances) describe(_ context.Context, node *v1.Node, v instance, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	if v.ip() == "" {
		return nil, &nodes.Incomplete{Reason: fmt.Sprintf("instance %s cannot become a node: it has no primary address yet", v.ID)}
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: node.Spec.ProviderID, InstanceType: v.Profile.Name, Zone: v.Zone.Name, Region: i.config.Region,
		NodeAddresses: i.addresses(node, v.ip()),
	}, nil
}

// verify compares names: controlling a kubelet is not enough to rename an instance.
func verify(_ context.Context, node *v1.Node, v instance) (why string, err error) {
	if v.Name != node.Name {
		return fmt.Sprintf("the instance %s is named %q", v.ID, v.Name), nil
	}
	return "", nil
}

// receiver is a node that receives traffic, and its target.
type receiver struct {
	node *v1.Node
	target
}

// unconfirmedNode is a node whose target no instance confirms. Its own report is only used to recognize an existing member.
type unconfirmedNode struct {
	receiver

	why string
}

// receivers returns the targets of nodes, and the nodes whose instance was not found. A kubelet can write its Node's addresses and labels,
// so these count only if the workers belong to IBM's own account, where instances cannot be read.
func (i *instances) receivers(
	ctx context.Context, list []*v1.Node, network bool,
) (all []receiver, unconfirmed []unconfirmedNode, err error) {
	for _, n := range list {
		r, why := receiver{n, reportedTarget(n, network)}, ""
		if i.config.OwnWorkers() {
			if r.target, why, err = i.findTarget(ctx, n, network, len(list)); err != nil {
				return nil, nil, err
			}
		}
		switch {
		case r.target != target{}:
			all = append(all, r)
		case why != "":
			unconfirmed = append(unconfirmed, unconfirmedNode{receiver{n, reportedTarget(n, network)}, why})
		}
	}
	return all, unconfirmed, nil
}

// findTarget returns a node's target from its instance; empty if there is none, with the doubt in why. A node whose provider ID names no
// instance of this cluster is found by its name, as IBM's own controller finds all nodes.
func (i *instances) findTarget(ctx context.Context, n *v1.Node, network bool, expected int) (t target, why string, err error) {
	_, err = i.parse(n.Spec.ProviderID)
	identified := err == nil
	if !identified && n.Spec.ProviderID != "" {
		n = n.DeepCopy()
		n.Spec.ProviderID = ""
	}
	v, err := i.found.Find(ctx, n, inventory.Query{MaxAge: nodes.SweepMaxAge, MaxMissAge: nodes.MissMaxAge, Expected: expected})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound) && identified:
		return target{}, "", nil
	case errors.Is(err, cloudapi.ErrNotFound):
		return target{}, "no instance of the VPC has its name", nil
	case errors.Is(err, cloudapi.ErrConflict) && !identified:
		return target{}, "several instances of the VPC have its name", nil
	case err != nil:
		return target{}, "", fmt.Errorf("finding the instance of node %s: %w", n.Name, err)
	case network:
		return target{ID: v.ID}, "", nil
	case v.ip() == "":
		return target{}, "its instance has no address", nil
	}
	return target{Address: v.ip()}, "", nil
}

// keepUnconfirmed returns the existing members of nodes without a known instance: they stay, because nothing proves that they should not
// receive traffic. A report of such a node creates no member.
func keepUnconfirmed(unconfirmed []unconfirmedNode, current map[target]bool) (kept []receiver, findings []services.Finding) {
	nodesByText := map[string][]string{}
	for _, o := range unconfirmed {
		what := "receives no traffic"
		if current[o.target] {
			kept = append(kept, o.receiver)
			what = "stays a member, and becomes none again once it was taken away"
		}
		what = o.why + ": it " + what
		nodesByText[what] = append(nodesByText[what], o.node.Name)
	}
	for _, what := range slices.Sorted(maps.Keys(nodesByText)) {
		names := slices.Sorted(slices.Values(nodesByText[what]))
		findings = append(findings, services.Warning(eventStranger, "%d node(s), such as %s: %s", len(names), strings.Join(names[:min(len(names), maxNamed)], ", "), what))
	}
	return kept, findings
}

// maxNamed bounds how many objects an event names.
const maxNamed = 5

// removalFindings reports members that are removed although no node left: somebody created them by hand, or IBM's own controller for former
// nodes.
func removalFindings(req services.Request, receivers []receiver, network bool, current map[target]bool) []services.Finding {
	if req.Purpose != services.Ensure {
		return nil
	}
	going := maps.Clone(current)
	for _, r := range receivers {
		delete(going, r.target)
	}
	for _, n := range req.Nodes {
		delete(going, reportedTarget(n, network))
	}
	var names []string
	for t := range going {
		names = append(names, cmp.Or(t.Address, t.ID))
	}
	if slices.Sort(names); len(names) == 0 {
		return nil
	}
	return []services.Finding{services.Notice(eventStray, "%d member(s), such as %s, belong to no node that receives traffic, and are taken away",
		len(names), strings.Join(names[:min(len(names), maxNamed)], ", "))}
}
