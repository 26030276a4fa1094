package linode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file converts the desired state to changes, and makes them.

// request is the creation of a NodeBalancer with all its parts. Its label is the same at every try, and unique in an account: after a lost
// response the NodeBalancer is found, or the API refuses a second one.
func (l *loadBalancers) request(ctx context.Context, service *v1.Service, d *desiredState) (r *nodeBalancerRequest, err error) {
	r = &nodeBalancerRequest{
		Label: label(l.config.Prefix, service), Region: l.config.Region, Type: d.settings.Type, Throttle: d.balancer.throttle,
		Configs: d.balancer.configs, IPv4: d.settings.ReservedIPv4, FirewallID: d.settings.FirewallID,
		Tags: slices.Concat([]string{}, d.balancer.tags, d.marks),
	}
	if r.FirewallID != 0 && l.config.OwnershipTag {
		r.Tags = append(r.Tags, firewallMark(r.FirewallID))
	}
	if r.BackendVPCs, err = l.backendVPCs(ctx, d.settings); err == nil {
		r.FrontendVPCs, err = l.frontendVPCs(ctx, d.settings)
	}
	return r, err
}

// creation creates the NodeBalancer, with the named firewall, or the Service's own one.
func (l *loadBalancers) creation(request *nodeBalancerRequest, own int) services.Change[finding] {
	return services.Change[finding]{
		Planned: contract.Planned{
			Action: contract.PlanCreate, Object: "NodeBalancer " + request.Label, Detail: fmt.Sprintf("in %s, %s", request.Region, portsOf(request.Configs)),
		},
		Creates: true,
		Compare: func() (before, after any) {
			shown := *request
			shown.Configs = slices.Clone(shown.Configs)
			for i := range shown.Configs {
				shown.Configs[i] = shown.Configs[i].planFields()
			}
			return nil, shown
		},
		Make: func(ctx context.Context, r *services.Request, f finding) (finding, error) {
			creation := *request
			creation.FirewallID = cmp.Or(creation.FirewallID, own, f.firewall)
			nb, err := l.api.createNodeBalancer(ctx, &creation)
			if creation.FirewallID != 0 {
				l.firewalls.Invalidate(creation.FirewallID) // it has, or may have, a new device
			}
			if err != nil {
				noteHidden(r, err)
				if !cloudapi.NotSent(err) {
					l.observed.Invalidate(0)
				}
				return f, err
			}
			l.observed.Put(nb)
			f.nb = nb
			return f, nil
		},
	}
}

// noteHidden records that a creation was refused because the label is taken: the NodeBalancer exists, and is not visible yet.
func noteHidden(r *services.Request, err error) {
	if errors.Is(err, cloudapi.ErrInvalid) && strings.Contains(err.Error(), "must be unique") {
		r.Asked(errors.New("it exists"))
	}
}

// changes converts a plan to changes. Each starts from the result of the one before.
func (l *loadBalancers) changes(nb *nodeBalancer, steps []step) []services.Change[finding] {
	var changes []services.Change[finding]
	for _, st := range steps {
		changes = append(changes, services.Change[finding]{
			Planned: contract.Planned{
				Action: contract.PlanChange, Object: fmt.Sprintf("NodeBalancer %d", nb.ID),
				Detail: strings.TrimSuffix(st.title()+": "+strings.Join(st.reasons, ", "), ": "),
			},
			Compare: func() (before, after any) { return st.compare(nb) },
			Make:    func(ctx context.Context, _ *services.Request, f finding) (finding, error) { return l.apply(ctx, f, st) },
		})
	}
	return changes
}

// planFields returns a config for plan: with a certificate's fingerprint, as in the API, and without a key.
func (f configFields) planFields() configFields {
	f.Cert, f.Key = fingerprint(f.Cert), ""
	return f
}

// compare returns the parts that a step changes, before and after it, for messages and logs.
func (s step) compare(nb *nodeBalancer) (before, after any) {
	before = struct {
		configFields

		Nodes nodeSet `json:"nodes"`
	}{keepObserved(s.config, configFields{Cert: s.config.SSLFingerprint, UDPCheckPort: s.config.UDPCheckPort}), s.config.nodes}
	fields := s.fields.planFields()
	switch s.kind {
	case updateBalancer:
		return services.Within(nb, s.update), s.update
	case deletePort:
		return before, nil
	case createPort:
		return nil, fields
	case addNode:
		return nil, s.add
	case removeNode:
		return s.remove, nil
	case updatePort, rebuildPort:
	}
	wanted := services.Part(fields, s.reasons...)
	return services.Within(before, wanted), wanted
}

// apply makes the call of a step. A failed call may have taken effect, so everything is read again.
func (l *loadBalancers) apply(ctx context.Context, f finding, st step) (finding, error) {
	nb, changed, err := l.call(ctx, f.nb, f.details, st)
	if cloudapi.NotSent(err) {
		return f, err
	}
	if err != nil {
		l.observed.Invalidate(f.nb.ID)
		l.details.Invalidate(f.nb.ID)
		if errors.Is(err, cloudapi.ErrInvalid) {
			l.instances.linodes.InvalidateAll() // a node may be gone, or have another address
			l.behind.Forget()
		}
		return f, err
	}
	if nb != nil {
		f.nb = nb
		l.observed.Put(nb)
	}
	if changed != nil {
		f.details = changed
		l.details.PutPartial(changed)
	}
	return f, nil
}

// call makes one call and returns the changed state.
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
		return nil, d.removeConfig(st.config.ID), err
	case createPort:
		c, err := l.api.createConfig(ctx, nb.ID, st.fields)
		if err != nil {
			return nil, nil, err
		}
		st.config.ID = c.ID
		after, changed, err := l.rebuild(ctx, nb, d, st)
		if err != nil {
			l.details.Invalidate(nb.ID) // the port exists, whether its nodes do or not
		}
		return after, changed, err
	case updatePort:
		c, err := l.api.updateConfig(ctx, nb.ID, st.config.ID, st.fields)
		if err != nil {
			return nil, nil, err
		}
		return nil, d.putConfig(config{NodeBalancerConfig: *c, nodes: st.config.nodes}), nil
	case rebuildPort:
		return l.rebuild(ctx, nb, d, st)
	case addNode:
		n, err := l.api.addNode(ctx, nb.ID, st.config.ID, st.add)
		if err != nil {
			return nil, nil, err
		}
		changed := st.config
		changed.nodes = st.config.nodes.insert(*n, l.api.rows)
		return nil, d.putConfig(changed), nil
	case removeNode:
		err := l.api.removeNode(ctx, nb.ID, st.config.ID, st.remove)
		if errors.Is(err, cloudapi.ErrNotFound) {
			err = nil
		}
		changed := st.config
		changed.nodes = st.config.nodes.removeNode(st.remove.ID, l.api.rows)
		return nil, d.putConfig(changed), err
	}
	return nil, nil, fmt.Errorf("unknown step %q", st.kind)
}

// rebuild replaces a config and its nodes. The response lacks the IDs of new nodes, so they are read once.
func (l *loadBalancers) rebuild(ctx context.Context, nb *nodeBalancer, d *details, st step) (*nodeBalancer, *details, error) {
	c, err := l.api.rebuildConfig(ctx, nb.ID, st.config.ID, st.fields)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := l.api.nodes(ctx, nb.ID, *c)
	if err != nil {
		l.details.Invalidate(nb.ID)
		return nil, nil, err
	}
	return nil, d.putConfig(config{NodeBalancerConfig: *c, nodes: nodes}), nil
}

// putConfig returns the details with one config replaced or added.
func (d *details) putConfig(c config) *details {
	after := d.removeConfig(c.ID)
	after.configs = append(after.configs, c)
	return after
}

func (d *details) removeConfig(id int) *details {
	others := slices.DeleteFunc(slices.Clone(d.configs), func(c config) bool { return c.ID == id })
	return &details{nodeBalancerID: d.nodeBalancerID, configs: others}
}

// wantNodes computes the desired nodes of existing ports, whose other fields stay unchanged.
func (l *loadBalancers) wantNodes(ctx context.Context, service *v1.Service, s settings, d *details, nodes []*v1.Node) (*desired, error) {
	behind, err := l.backends(ctx, s, nodes)
	if err != nil {
		return nil, err
	}
	if behind.isEmpty() {
		return nil, errNoBackends
	}
	want := &desired{}
	for _, port := range service.Spec.Ports {
		for _, udp := range []bool{false, true} {
			i := slices.IndexFunc(d.configs, func(c config) bool {
				asked := s.usesUDP(port)
				return c.Port == int(port.Port) && udp == (c.Protocol == linodego.ProtocolUDP) && udp == asked
			})
			if i < 0 {
				continue
			}
			f := configFields{Port: int(port.Port), Protocol: string(d.configs[i].Protocol), UDPCheckPort: d.configs[i].UDPCheckPort}
			f.Nodes = behind.atPort(f.Protocol, port.NodePort)
			want.configs = append(want.configs, f)
		}
	}
	if err := l.withSecrets(ctx, service, s, d, want); err != nil {
		return nil, err
	}
	return want, nil
}

// withSecrets adds certificates if a rebuild needs them: the API does not return them.
func (l *loadBalancers) withSecrets(ctx context.Context, service *v1.Service, s settings, d *details, want *desired) error {
	for i, f := range want.configs {
		n := slices.IndexFunc(d.configs, func(c config) bool { return samePort(c, f) })
		if f.Protocol != protocolHTTPS || n < 0 {
			continue
		}
		if d.configs[n].nodes.compareWith(f.Nodes).count() < 2 {
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
		protocol := firstSet(s.ports[port.Port].Protocol, s.Protocol, strings.ToLower(string(port.Protocol)))
		if name == "" || protocol != protocolHTTPS || l.kube == nil {
			continue
		}
		object, err := l.kube.CoreV1().Secrets(service.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("port %d: reading its TLS secret %s: %w", port.Port, name, err)
		}
		one := secret{
			Cert: strings.TrimSpace(string(object.Data[v1.TLSCertKey])),
			Key:  privateKey(strings.TrimSpace(string(object.Data[v1.TLSPrivateKeyKey]))),
		}
		if fingerprint(one.Cert) == "" || one.Key == "" {
			return nil, fmt.Errorf("port %d: the secret %s holds no certificate and key under %s and %s", port.Port, name, v1.TLSCertKey, v1.TLSPrivateKeyKey)
		}
		found[name] = one
	}
	return found, nil
}

// backendVPCs attaches the NodeBalancer to the network of its backends; the first applicable rule counts.
func (l *loadBalancers) backendVPCs(ctx context.Context, s settings) ([]vpcOptions, error) {
	subnetID, err := l.backendSubnet(ctx, s)
	if err != nil || subnetID == 0 {
		return nil, err
	}
	o := vpcOptions{SubnetID: subnetID}
	switch {
	case s.BackendRange != "":
		if err := checkInside(s.BackendRange, l.config.BackendSubnet); err != nil {
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

// checkInside refuses a range outside of the option's range.
func checkInside(text, bound string) error {
	if bound == "" {
		return nil
	}
	inner, outer := netip.MustParsePrefix(text), netip.MustParsePrefix(strings.TrimSpace(bound)) // the tables checked both
	if !outer.Contains(inner.Addr()) || inner.Bits() < outer.Bits() {
		return &schema.Problem{Place: "annotation " + annotationBackendRange, Value: text, Reason: "is not inside --nodebalancer-backend-ipv4-subnet, " + bound}
	}
	return nil
}

func (l *loadBalancers) frontendVPCs(ctx context.Context, s settings) ([]vpcOptions, error) {
	if !s.hasFrontendVPC() {
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

func portsOf(configs []configFields) string {
	texts := make([]string, len(configs))
	for i, f := range configs {
		texts[i] = fmt.Sprintf("%s/%d with %d nodes", f.Protocol, f.Port, len(f.Nodes.rows))
	}
	return strings.Join(texts, ", ")
}
