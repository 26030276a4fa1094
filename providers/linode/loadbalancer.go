package linode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	// ensureMaxAge is how old the observed state may be when a Service is reconciled. Our own writes are in it at once;
	// the age only delays the sight of changes that somebody else made.
	ensureMaxAge = 10 * time.Second
	// updateMaxAge serves a change of nodes, which concerns every NodeBalancer at about the same time.
	updateMaxAge = 60 * time.Second
	// detailsMaxAge is for ports and nodes when nodes change: our own writes keep them true, and a write that the API
	// refuses makes them be read anew. Reading them for every node that joins would cost a call for each port.
	detailsMaxAge = 24 * time.Hour
	// ensureDetailsMaxAge is for them when a Service is reconciled.
	ensureDetailsMaxAge = 60 * time.Second
	// backendMaxAge is for the Linodes behind the nodes.
	backendMaxAge = 10 * time.Minute
)

// Reasons of the events that the provider writes on Services.
const (
	eventConfigError = "LoadBalancerConfigError"
	eventIgnored     = "LoadBalancerAnnotationIgnored"
	eventFixed       = "LoadBalancerAnnotationFixed"
	eventNotOurs     = ownership.EventNotOurs
	// eventIPChange has the name that Linode's own controller uses.
	eventIPChange = "NodeBalancerIPChangeIgnored"
	// eventRangesIgnored: spec.loadBalancerSourceRanges has no effect.
	eventRangesIgnored = "LoadBalancerSourceRangesIgnored"
	// eventKept: something of the user's outlives the Service.
	eventKept = "LoadBalancerRetained"
)

// loadBalancers implements cloudprovider.LoadBalancer.
type loadBalancers struct {
	config    Config
	api       *api
	vpcs      *vpcs
	instances *instances
	observed  *inventory.Inventory[int, *nodeBalancer]
	details   *inventory.Inventory[int, *details]
	firewalls *inventory.Inventory[int, *linodego.Firewall]
	cluster   *ownership.Cluster
	// adopt is the operator's policy about NodeBalancers without a mark.
	adopt  registry.Adoption
	served served
	// services are those of the cluster; set by SetInformers.
	services listers.ServiceLister

	// Set by Initialize, before any call of the framework.
	kube   kubernetes.Interface
	events record.EventRecorder
}

var _ cloudprovider.LoadBalancer = (*loadBalancers)(nil)

func newLoadBalancers(c Config, a *api, v *vpcs, i *instances) *loadBalancers {
	return &loadBalancers{
		config: c, api: a, vpcs: v, instances: i, cluster: &ownership.Cluster{},
		observed: inventory.New(inventory.Source[int, *nodeBalancer]{
			Kind: "NodeBalancer", ID: func(nb *nodeBalancer) int { return nb.ID }, List: a.nodeBalancers, Get: a.nodeBalancer,
			Indexes: map[string]func(*nodeBalancer) []string{
				indexLabel: func(nb *nodeBalancer) []string { return []string{nb.Label} },
				indexIP:    func(nb *nodeBalancer) []string { return []string{nb.IPv4, nb.IPv6, nb.Hostname} },
			},
		}),
		details: inventory.New(inventory.Source[int, *details]{
			Kind: "NodeBalancer detail", ID: func(d *details) int { return d.nodeBalancerID }, Get: a.details,
		}),
		firewalls: newFirewallInventory(a),
	}
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (l *loadBalancers) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return label(l.config.Prefix, service)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer.
func (l *loadBalancers) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	found, err := l.findOurs(ctx, service, nil, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return nil, false, err
	}
	if found.nb == nil {
		// The framework deletes nothing where it hears of nothing, and a firewall outlives its NodeBalancer for a moment.
		left, err := l.leftFirewalls(ctx, service)
		return &v1.LoadBalancerStatus{}, len(left) > 0, err
	}
	s, _, _ := parseSettings(service, l.config) // a fault in other annotations does not hide what is there
	return status(found.nb, s), true, nil
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer: observe, desire, plan, apply, and tell the Service.
func (l *loadBalancers) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	s, err := l.settings(service)
	if err != nil {
		return nil, err
	}
	found, err := l.find(ctx, service, nodes, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return nil, err
	}
	if err := found.Err(); err != nil {
		ownership.Report(l.events, service, found.Decision)
		return nil, err
	}
	nb := found.nb
	if found.Verdict == ownership.Owned {
		l.served.note(service, nb.ID)
	}
	want, err := l.want(ctx, cluster, service, s, nodes)
	if err != nil {
		return nil, err
	}
	if nb == nil {
		if nb, err = l.create(ctx, service, s, want); err != nil {
			return nil, err
		}
	} else if nb, err = l.converge(ctx, service, s, found, want); err != nil {
		return nil, err
	}
	previous := service.Annotations[annotationRecord]
	if err := l.record(ctx, service, s, nb); err != nil {
		return nil, err
	}
	if err := l.cleanUpPrevious(ctx, service, s, nb, previous); err != nil {
		return nil, err
	}
	return status(nb, s), nil
}

// converge brings a NodeBalancer that exists to the wanted state.
func (l *loadBalancers) converge(ctx context.Context, service *v1.Service, s settings, found finding, want *desired) (*nodeBalancer, error) {
	nb := found.nb
	l.reportFixed(service, s, nb)
	_, done, err := l.ensureFirewall(ctx, service, s, nb, want)
	if err != nil {
		return nil, err
	}
	if nb, err = l.noteFirewalls(ctx, s, nb, done); err != nil {
		return nil, err
	}
	d, err := l.details.Get(ctx, nb.ID, inventory.Query{MaxAge: ensureDetailsMaxAge})
	if err != nil {
		return nil, err
	}
	steps, err := l.remarked(ctx, service, found, nb, want, plan(nb, d, want))
	if err != nil {
		return nil, err
	}
	return l.apply(ctx, service, nb, d, steps)
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer: the nodes alone, and only where they differ. Nothing is
// created here. Faults in annotations do not keep nodes from joining or leaving, unless they leave open how the nodes are
// reached.
func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	found, err := l.findOurs(ctx, service, nodes, inventory.Query{MaxAge: detailsMaxAge, MaxMissAge: updateMaxAge})
	if err != nil || found.nb == nil {
		return err
	}
	nb := found.nb
	d, err := l.details.Get(ctx, nb.ID, inventory.Query{MaxAge: detailsMaxAge})
	if err != nil {
		return err
	}
	s, _, err := parseSettings(service, l.config)
	if err := concerning(err, backendAnnotations()...); err != nil {
		return err
	}
	want, err := l.wantNodes(ctx, service, s, d, nodes)
	if err != nil {
		return err
	}
	_, err = l.apply(ctx, service, nb, d, planNodes(d, want))
	return err
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. What is ours goes, and what is the user's stays: the
// NodeBalancer first, so that it never serves without its firewall.
func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	s, _, err := bound().Parse(service.Annotations)
	if err := concerning(err, annotationPreserve, annotationRetainReservedIPv4); err != nil {
		return err // in doubt nothing is deleted
	}
	found, err := l.findOurs(ctx, service, nil, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return err
	}
	if s.Preserve {
		return nil
	}
	if found.nb != nil {
		if err := l.remove(ctx, service, s, found.nb); err != nil {
			return err
		}
	}
	if err := l.deleteOwnFirewall(ctx, service); err != nil {
		return err
	}
	l.served.forget(service)
	return nil
}

// remove deletes a NodeBalancer that we, or Linode's own controller, made; another one gets its ports back as they were
// for others to use, which is not ours to decide, so it is left as it is. It is read right before: an earlier look may have
// seen what is somebody else's by now.
func (l *loadBalancers) remove(ctx context.Context, service *v1.Service, s settings, seen *nodeBalancer) error {
	nb, err := l.observed.Get(ctx, seen.ID, inventory.Query{})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := l.judge(ctx, service, nb, nil)
	if err == nil {
		err = now.Err()
	}
	if err != nil {
		return err
	}
	if !now.Deletable {
		l.event(service, v1.EventTypeNormal, eventKept, fmt.Sprintf(
			"NodeBalancer %d is kept: nothing that only a controller can write shows that one made it for this Service; delete it in the cloud if it is not needed", nb.ID))
		return nil
	}
	if err := l.adoptFirewallForDeletion(ctx, service, nb); err != nil {
		return err
	}
	// The address goes first: once the NodeBalancer is gone, nothing leads to it, and a release that failed would be forgotten.
	if err := l.releaseReserved(ctx, service, s, nb); err != nil {
		return err
	}
	klog.InfoS("Deleting NodeBalancer", "service", klog.KObj(service), "nodeBalancer", nb.ID)
	if err := l.api.deleteNodeBalancer(ctx, nb.ID); err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		l.observed.Invalidate(nb.ID)
		return err
	}
	l.observed.Forget(nb.ID)
	l.details.Forget(nb.ID)
	return nil
}

// settings reads the annotations and tells the Service what is wrong with them.
func (l *loadBalancers) settings(service *v1.Service) (settings, error) {
	s, warnings, err := parseSettings(service, l.config)
	for _, w := range schema.Problems(warnings) {
		l.event(service, v1.EventTypeWarning, eventIgnored, w.Error())
	}
	if err != nil {
		l.event(service, v1.EventTypeWarning, eventConfigError, err.Error())
	}
	return s, err
}

// reportFixed tells of wishes that came too late.
func (l *loadBalancers) reportFixed(service *v1.Service, s settings, nb *nodeBalancer) {
	if s.ReservedIPv4 != "" && s.ReservedIPv4 != nb.IPv4 {
		l.event(service, v1.EventTypeWarning, eventIPChange, fmt.Sprintf(
			"IPv4 annotation changed to %s, but NodeBalancer (%d) IP cannot be updated after creation. It will remain %s", s.ReservedIPv4, nb.ID, nb.IPv4))
	}
	if service.Annotations[annotationType] != "" && nb.Type != "" && s.Type != nb.Type {
		l.event(service, v1.EventTypeWarning, eventFixed, fmt.Sprintf(
			"annotation %s: %q has no effect, it stays %q: it is fixed when the NodeBalancer is created; delete and create the Service to change it", annotationType, s.Type, nb.Type))
	}
	if s.FrontendSubnetID != 0 && nb.FrontendSubnetID != s.FrontendSubnetID {
		l.event(service, v1.EventTypeWarning, eventFixed, fmt.Sprintf(
			"annotation %s: \"%d\" has no effect: the network of a NodeBalancer is fixed when it is created; delete and create the Service to change it", annotationFrontendSubnetID, s.FrontendSubnetID))
	}
}

// want computes the desired state.
func (l *loadBalancers) want(ctx context.Context, cluster string, service *v1.Service, s settings, nodes []*v1.Node) (*desired, error) {
	backends, err := l.backends(ctx, s, nodes)
	if err != nil {
		return nil, err
	}
	secrets, err := l.secrets(ctx, service, s)
	if err == nil {
		var want *desired
		if want, err = desire(service, s, tagsOf(cluster, l.config, s), backends, secrets); err == nil {
			return want, nil
		}
	}
	l.event(service, v1.EventTypeWarning, eventConfigError, err.Error())
	return nil, err
}

// wantNodes computes the desired nodes of ports that exist, whose other fields stay as they are.
func (l *loadBalancers) wantNodes(ctx context.Context, service *v1.Service, s settings, d *details, nodes []*v1.Node) (*desired, error) {
	backends, err := l.backends(ctx, s, nodes)
	if err != nil {
		return nil, err
	}
	if len(backends) == 0 {
		return nil, errNoBackends
	}
	want := &desired{}
	for _, port := range service.Spec.Ports {
		for _, udp := range []bool{false, true} {
			i := slices.IndexFunc(d.configs, func(c config) bool {
				return c.Port == int(port.Port) && udp == (c.Protocol == linodego.ProtocolUDP) && udp == (port.Protocol == v1.ProtocolUDP || s.ports[port.Port].Protocol == protocolUDP || s.Protocol == protocolUDP)
			})
			if i < 0 {
				continue
			}
			f := configFields{Port: int(port.Port), Protocol: string(d.configs[i].Protocol), UDPCheckPort: d.configs[i].UDPCheckPort}
			for _, b := range backends {
				f.Nodes = append(f.Nodes, nodeOptions{
					Address: netip.AddrPortFrom(b.address, uint16(port.NodePort)).String(), //nolint:gosec // a port of the API server
					Label:   nodeLabel(b.node), Weight: nodeWeight, Mode: mode(f.Protocol), SubnetID: b.subnetID,
				})
			}
			want.configs = append(want.configs, f)
		}
	}
	if err := l.withSecrets(ctx, service, s, d, want); err != nil {
		return nil, err
	}
	return want, nil
}

// withSecrets adds certificates where a rebuild needs them: the API does not give them back.
func (l *loadBalancers) withSecrets(ctx context.Context, service *v1.Service, s settings, d *details, want *desired) error {
	for i, f := range want.configs {
		n := slices.IndexFunc(d.configs, func(c config) bool { return samePort(c, f) })
		if f.Protocol != protocolHTTPS || n < 0 {
			continue
		}
		add, remove, change := nodeChanges(d.configs[n], f)
		if len(add)+len(remove)+change < 2 {
			continue
		}
		secrets, err := l.secrets(ctx, service, s)
		if err != nil {
			return err
		}
		found := secrets[s.ports[int32(f.Port)].TLSSecret] //nolint:gosec // a port
		want.configs[i].Cert, want.configs[i].Key = found.Cert, found.Key
	}
	return nil
}

// secrets reads the TLS Secrets that the ports of a Service name.
func (l *loadBalancers) secrets(ctx context.Context, service *v1.Service, s settings) (map[string]secret, error) {
	found := map[string]secret{}
	for _, port := range service.Spec.Ports {
		name := s.ports[port.Port].TLSSecret
		if name == "" || pick(s.ports[port.Port].Protocol, s.Protocol, strings.ToLower(string(port.Protocol))) != protocolHTTPS || l.kube == nil {
			continue
		}
		object, err := l.kube.CoreV1().Secrets(service.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("port %d: reading its TLS secret %s: %w", port.Port, name, err)
		}
		one := secret{Cert: strings.TrimSpace(string(object.Data[v1.TLSCertKey])), Key: privateKey(strings.TrimSpace(string(object.Data[v1.TLSPrivateKeyKey])))}
		if fingerprint(one.Cert) == "" || one.Key == "" {
			return nil, fmt.Errorf("port %d: the secret %s holds no certificate and key under %s and %s", port.Port, name, v1.TLSCertKey, v1.TLSPrivateKeyKey)
		}
		found[name] = one
	}
	return found, nil
}

// create makes the NodeBalancer of a Service with everything that it has. Its label is the same at every try, and labels
// are unique in an account: where the answer to a creation was lost, it is found, or the API refuses a second one.
func (l *loadBalancers) create(ctx context.Context, service *v1.Service, s settings, want *desired) (*nodeBalancer, error) {
	request := &nodeBalancerRequest{
		Label: label(l.config.Prefix, service), Region: l.config.Region, Type: s.Type, Throttle: want.throttle, Configs: want.configs,
		IPv4: s.ReservedIPv4,
	}
	var err error
	if request.Tags, err = l.marked(ctx, service, want.tags); err != nil {
		return nil, err
	}
	if request.BackendVPCs, err = l.backendVPCs(ctx, s); err == nil {
		request.FrontendVPCs, err = l.frontendVPCs(ctx, s)
	}
	if err != nil {
		l.event(service, v1.EventTypeWarning, eventConfigError, err.Error())
		return nil, err
	}
	if request.FirewallID, _, err = l.ensureFirewall(ctx, service, s, nil, want); err != nil {
		return nil, err
	}
	if s.FirewallID != 0 && l.config.OwnershipTag {
		request.Tags = append(request.Tags, firewallMark(s.FirewallID))
	}
	klog.InfoS("Creating NodeBalancer", "service", klog.KObj(service), "label", request.Label, "ports", len(request.Configs))
	nb, err := l.api.createNodeBalancer(ctx, request)
	if request.FirewallID != 0 {
		l.firewalls.Invalidate(request.FirewallID) // it has, or may have, a new device
	}
	if err != nil {
		if !cloudapi.NotSent(err) {
			l.observed.Invalidate(0)
		}
		return nil, err
	}
	l.observed.Put(nb)
	return nb, nil
}

// backendVPCs attaches the NodeBalancer to the network of its backends; the first rule that applies counts.
func (l *loadBalancers) backendVPCs(ctx context.Context, s settings) ([]vpcOptions, error) {
	subnetID, err := l.backendSubnet(ctx, s)
	if err != nil || subnetID == 0 {
		return nil, err
	}
	o := vpcOptions{SubnetID: subnetID}
	switch {
	case s.BackendRange != "":
		if err := inside(s.BackendRange, l.config.BackendSubnet); err != nil {
			return nil, err
		}
		o.IPv4Range = s.BackendRange
	case s.BackendVPC != "" || s.BackendSubnet != "":
	case l.config.BackendSubnetID != 0:
		o.SubnetID = l.config.BackendSubnetID
	case l.config.BackendSubnet != "":
		o.IPv4Range, o.IPv4RangeAutoAssign = l.config.BackendSubnet, true
	}
	return []vpcOptions{o}, nil
}

// inside refuses a range that is not within the one that the option names.
func inside(text, bound string) error {
	if bound == "" {
		return nil
	}
	inner, outer := netip.MustParsePrefix(text), netip.MustParsePrefix(strings.TrimSpace(bound)) // both are checked by their tables
	if !outer.Contains(inner.Addr()) || inner.Bits() < outer.Bits() {
		return &schema.Problem{Place: "annotation " + annotationBackendRange, Value: text, Reason: "is not inside --nodebalancer-backend-ipv4-subnet, " + bound}
	}
	return nil
}

func (l *loadBalancers) frontendVPCs(ctx context.Context, s settings) ([]vpcOptions, error) {
	if !s.frontend() {
		return nil, nil
	}
	id := s.FrontendSubnetID
	if id == 0 {
		var err error
		if id, err = l.vpcs.subnetID(ctx, s.FrontendVPC, s.FrontendSubnet); err != nil {
			return nil, err
		}
	}
	return []vpcOptions{{SubnetID: id, IPv4Range: s.FrontendRangeV4, IPv6Range: s.FrontendRangeV6}}, nil
}

// cleanUpPrevious removes the NodeBalancer that served the Service before it moved to another one.
func (l *loadBalancers) cleanUpPrevious(ctx context.Context, service *v1.Service, s settings, now *nodeBalancer, recorded string) error {
	if service.Annotations[annotationID] == "" || s.Preserve || guard.Keeps(service) {
		return nil
	}
	without := service.DeepCopy()
	delete(without.Annotations, annotationID)
	without.Annotations[annotationRecord] = recorded
	previous, err := l.findByRecords(ctx, without, nil, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil || previous.nb == nil || previous.nb.ID == now.ID || previous.Verdict == ownership.Refused {
		return err
	}
	return l.remove(ctx, without, s, previous.nb)
}

// apply makes the planned calls. Whatever fails may have taken effect, so the next look reads everything again.
func (l *loadBalancers) apply(ctx context.Context, service *v1.Service, nb *nodeBalancer, d *details, steps []step) (*nodeBalancer, error) {
	for _, st := range steps {
		klog.InfoS("Changing NodeBalancer", "service", klog.KObj(service), "nodeBalancer", nb.ID, "step", st.kind, "port", cmp.Or(st.fields.Port, st.config.Port), "fields", st.reasons)
		after, changed, err := l.call(ctx, nb, d, st)
		if cloudapi.NotSent(err) {
			return nil, err
		}
		if err != nil {
			l.observed.Invalidate(nb.ID)
			l.details.Invalidate(nb.ID)
			if errors.Is(err, cloudapi.ErrInvalid) {
				l.instances.linodes.Distrust() // a node may have gone, or have another address
			}
			return nil, err
		}
		if after != nil {
			nb = after
			l.observed.Put(nb)
		}
		if changed != nil {
			d = changed
			l.details.Amend(d)
		}
	}
	return nb, nil
}

// call makes one call and returns what is known to be different after it.
func (l *loadBalancers) call(ctx context.Context, nb *nodeBalancer, d *details, st step) (*nodeBalancer, *details, error) {
	switch st.kind {
	case updateBalancer:
		after, err := l.api.updateNodeBalancer(ctx, nb.ID, st.update)
		return after, nil, err
	case deletePort:
		err := l.api.deleteConfig(ctx, nb.ID, st.config.ID, st.config.Port)
		if errors.Is(err, cloudapi.ErrNotFound) {
			err = nil
		}
		return nil, d.without(st.config.ID), err
	case createPort:
		c, err := l.api.createConfig(ctx, nb.ID, st.fields)
		if err != nil {
			return nil, nil, err
		}
		st.config.ID = c.ID
		after, changed, err := l.rebuild(ctx, nb, d, st)
		if err != nil {
			l.details.Invalidate(nb.ID) // the port is there, whatever became of its nodes
		}
		return after, changed, err
	case updatePort:
		c, err := l.api.updateConfig(ctx, nb.ID, st.config.ID, st.fields)
		if err != nil {
			return nil, nil, err
		}
		return nil, d.with(config{NodeBalancerConfig: *c, nodes: st.config.nodes}), nil
	case rebuildPort:
		return l.rebuild(ctx, nb, d, st)
	case addNode:
		n, err := l.api.addNode(ctx, nb.ID, st.config.ID, st.add)
		if err != nil {
			return nil, nil, err
		}
		changed := st.config
		changed.nodes = append(slices.Clone(st.config.nodes), *n)
		return nil, d.with(changed), nil
	case removeNode:
		err := l.api.removeNode(ctx, nb.ID, st.config.ID, st.remove)
		if errors.Is(err, cloudapi.ErrNotFound) {
			err = nil
		}
		changed := st.config
		changed.nodes = slices.DeleteFunc(slices.Clone(st.config.nodes), func(n linodego.NodeBalancerNode) bool { return n.ID == st.remove.ID })
		return nil, d.with(changed), err
	}
	return nil, nil, fmt.Errorf("unknown step %q", st.kind)
}

// rebuild replaces a config and its nodes. The answer does not tell the IDs of new nodes, so they are read once.
func (l *loadBalancers) rebuild(ctx context.Context, nb *nodeBalancer, d *details, st step) (*nodeBalancer, *details, error) {
	c, err := l.api.rebuildConfig(ctx, nb.ID, st.config.ID, st.fields)
	if err != nil {
		return nil, nil, err
	}
	nodes, _, err := listAll[linodego.NodeBalancerNode](ctx, l.api, fmt.Sprintf("nodes of port %d of NodeBalancer %d", c.Port, nb.ID), fmt.Sprintf("nodebalancers/%d/configs/%d/nodes", nb.ID, c.ID), "")
	if err != nil {
		l.details.Invalidate(nb.ID)
		return nil, nil, err
	}
	return nil, d.with(config{NodeBalancerConfig: *c, nodes: nodes}), nil
}

// with returns the details with one config replaced or added.
func (d *details) with(c config) *details {
	after := d.without(c.ID)
	after.configs = append(after.configs, c)
	return after
}

func (d *details) without(id int) *details {
	return &details{nodeBalancerID: d.nodeBalancerID, configs: slices.DeleteFunc(slices.Clone(d.configs), func(c config) bool { return c.ID == id })}
}

// record writes the ID of the NodeBalancer on the Service, and that of a firewall that it had us attach.
func (l *loadBalancers) record(ctx context.Context, service *v1.Service, s settings, nb *nodeBalancer) error {
	changes := map[string]any{}
	if id := strconv.Itoa(nb.ID); service.Annotations[annotationRecord] != id {
		changes[annotationRecord] = id
	}
	switch s.FirewallID {
	case s.FirewallRecord:
	case 0:
		changes[annotationFirewallRecord] = nil
	default:
		changes[annotationFirewallRecord] = strconv.Itoa(s.FirewallID)
	}
	if len(changes) == 0 || l.kube == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": service.UID, "annotations": changes}})
	if err != nil {
		return fmt.Errorf("recording NodeBalancer %d on the Service: %w", nb.ID, err)
	}
	if _, err := l.kube.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("recording NodeBalancer %d on the Service: %w", nb.ID, err)
	}
	return nil
}

func (l *loadBalancers) event(service *v1.Service, kind, reason, message string) {
	if l.events != nil {
		l.events.Event(service, kind, reason, message)
	}
}
