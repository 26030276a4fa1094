package linode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/secrets"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file converts the desired state to changes, and makes them.

// request returns the creation of a NodeBalancer with all its parts. Its label is always the same, and unique in an account: after a lost
// response the NodeBalancer is found, or the API refuses a second one.
func (r *reconciler) request(ctx context.Context, service *v1.Service, s settings, d *desired) (request *nodeBalancerRequest, err error) {
	request = &nodeBalancerRequest{
		Label: label(r.config.Prefix, service), Region: r.config.Region, Type: s.Type, Throttle: d.throttle,
		Configs: d.configs, IPv4: s.ReservedIPv4, FirewallID: s.FirewallID,
		Tags: slices.Concat([]string{}, d.tags, d.marks),
	}
	if s.FirewallID != 0 && r.config.OwnershipTag {
		request.Tags = append(request.Tags, firewallMark(s.FirewallID))
	}
	if request.BackendVPCs, err = r.vpcs.backendVPCs(ctx, s); err == nil {
		request.FrontendVPCs, err = r.vpcs.frontendVPCs(ctx, s)
	}
	return request, err
}

// creation creates the NodeBalancer, with the named firewall, or the Service's own one.
func (r *reconciler) creation(request *nodeBalancerRequest, own int) services.Change[observed] {
	return services.Change[observed]{
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
		Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			creation := *request
			creation.FirewallID = cmp.Or(creation.FirewallID, own, o.firewall)
			nb, err := r.api.createNodeBalancer(ctx, &creation)
			if creation.FirewallID != 0 {
				r.firewalls.Invalidate(creation.FirewallID) // it has, or may have, a new device
			}
			if err != nil {
				noteHidden(req, err)
				if !cloudapi.NotSent(err) {
					r.balancers.Invalidate(0)
				}
				return o, err
			}
			r.balancers.Put(nb)
			o.nb = nb
			return o, nil
		},
	}
}

// noteHidden records that a creation was refused because the label is taken: the object exists, and is not visible yet.
func noteHidden(req *services.Request, err error) {
	if errors.Is(err, cloudapi.ErrInvalid) && strings.Contains(err.Error(), "must be unique") {
		req.Asked(errors.New("it exists"))
	}
}

// changes converts a plan to changes. Each starts from the result of the one before.
func (r *reconciler) changes(nb *nodeBalancer, steps []step) []services.Change[observed] {
	var changes []services.Change[observed]
	for _, st := range steps {
		changes = append(changes, services.Change[observed]{
			Planned: contract.Planned{
				Action: contract.PlanChange, Object: fmt.Sprintf("NodeBalancer %d", nb.ID),
				Detail: strings.TrimSuffix(st.title()+": "+strings.Join(st.reasons, ", "), ": "),
			},
			Compare: func() (before, after any) { return st.compare(nb) },
			Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
				return r.apply(ctx, o, st)
			},
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
	present := keepObserved(s.config, configFields{Cert: s.config.SSLFingerprint, UDPCheckPort: s.config.UDPCheckPort})
	before = rebuildFields{present, s.config.nodes}
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
func (r *reconciler) apply(ctx context.Context, o observed, st step) (observed, error) {
	after, err := r.call(ctx, o, st)
	switch {
	case cloudapi.NotSent(err):
		return o, err
	case err != nil:
		r.balancers.Invalidate(o.nb.ID)
		r.details.Invalidate(o.nb.ID)
		if errors.Is(err, cloudapi.ErrInvalid) {
			r.instances.linodes.InvalidateAll() // a node may be gone, or have another address
			r.backends.shared.Forget()
		}
		return o, err
	case st.kind == updateBalancer:
		r.balancers.Put(after.nb)
	default:
		r.details.PutPartial(after.details)
	}
	return after, nil
}

// call makes one call and returns the changed state.
func (r *reconciler) call(ctx context.Context, o observed, st step) (_ observed, err error) {
	id, port := o.nb.ID, st.config
	switch st.kind {
	case updateBalancer:
		o.nb, err = r.api.updateNodeBalancer(ctx, id, st.update)
		return o, err
	case deletePort:
		err = r.api.deleteConfig(ctx, id, port.ID, port.Port)
		o.details = o.details.removeConfig(port.ID)
		return o, cloudapi.IgnoreNotFound(err)
	case createPort:
		c, err := r.api.createConfig(ctx, id, st.fields)
		if err != nil {
			return o, err
		}
		if port, err = r.rebuild(ctx, id, c.ID, st.fields); err != nil {
			r.details.Invalidate(id) // the port exists, whether its nodes do or not
			return o, err
		}
	case updatePort:
		c, err := r.api.updateConfig(ctx, id, port.ID, st.fields)
		if err != nil {
			return o, err
		}
		port.NodeBalancerConfig = *c
	case rebuildPort:
		if port, err = r.rebuild(ctx, id, port.ID, st.fields); err != nil {
			return o, err
		}
	case addNode:
		n, err := r.api.addNode(ctx, id, port.ID, st.add)
		if err != nil {
			return o, err
		}
		port.nodes = port.nodes.insert(*n, r.api.rows)
	case removeNode:
		if err := cloudapi.IgnoreNotFound(r.api.removeNode(ctx, id, port.ID, st.remove)); err != nil {
			return o, err
		}
		port.nodes = port.nodes.removeNode(st.remove.ID, r.api.rows)
	}
	o.details = o.details.putConfig(port)
	return o, nil
}

// rebuild replaces a config and its nodes. The response lacks the IDs of new nodes, so they are read once.
func (r *reconciler) rebuild(ctx context.Context, id, configID int, fields configFields) (config, error) {
	c, err := r.api.rebuildConfig(ctx, id, configID, fields)
	if err != nil {
		return config{}, err
	}
	nodes, err := r.api.nodes(ctx, id, *c)
	if err != nil {
		r.details.Invalidate(id)
		return config{}, err
	}
	return config{NodeBalancerConfig: *c, nodes: nodes}, nil
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

// planNodes returns the calls for a change of nodes alone: other fields of existing ports stay unchanged.
func (r *reconciler) planNodes(
	ctx context.Context, service *v1.Service, s settings, d *details, nodes []*v1.Node,
) (steps []step, err error) {
	wanted, err := r.backends.find(ctx, s, nodes)
	if err != nil {
		return nil, err
	}
	if wanted.isEmpty() {
		return nil, errNoBackends
	}
	for _, port := range service.Spec.Ports {
		i := slices.IndexFunc(d.configs, func(c config) bool {
			return c.Port == int(port.Port) && (c.Protocol == linodego.ProtocolUDP) == s.usesUDP(port)
		})
		if i < 0 {
			continue
		}
		c := d.configs[i]
		f := configFields{UDPCheckPort: c.UDPCheckPort, Nodes: wanted.atPort(string(c.Protocol), port.NodePort)}
		if c.Protocol == linodego.ProtocolHTTPS && c.nodes.compareWith(f.Nodes).count() > 1 {
			// A rebuild needs the certificate, and the API does not return it.
			named, err := r.secrets(ctx, service, s, r.follower.Get)
			if err != nil {
				return nil, err
			}
			found := named[s.ports[port.Port].TLSSecret]
			f.Cert, f.Key = found.Cert, found.Key
		}
		steps = append(steps, planPort(c, keepObserved(c, f))...)
	}
	return steps, nil
}

// secrets reads the TLS Secrets that the ports of a Service name.
func (r *reconciler) secrets(ctx context.Context, service *v1.Service, s settings, read secrets.Read) (map[string]secret, error) {
	found := map[string]secret{}
	for _, port := range service.Spec.Ports {
		name := s.ports[port.Port].TLSSecret
		protocol := firstSet(s.ports[port.Port].Protocol, s.Protocol, strings.ToLower(string(port.Protocol)))
		if name == "" || protocol != protocolHTTPS || r.kube == nil {
			continue
		}
		object, err := read(ctx, service.Namespace, name)
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

func portsOf(configs []configFields) string {
	texts := make([]string, len(configs))
	for i, f := range configs {
		texts[i] = fmt.Sprintf("%s/%d with %d nodes", f.Protocol, f.Port, len(f.Nodes.rows))
	}
	return strings.Join(texts, ", ")
}
