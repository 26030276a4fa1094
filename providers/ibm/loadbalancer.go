package ibm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	// lookAgain is when a load balancer that is being set up is looked at again.
	lookAgain = 10 * time.Second
	// creationShows is how long a load balancer may take to show whose creation was not answered.
	creationShows = 45 * time.Second
	// observedMaxAge is how old what is known of a load balancer may be. Our own writes are in it at once.
	observedMaxAge = 10 * time.Second
	// unlistedMaxAge lets one listing serve many new Services: nobody else makes what they look for.
	unlistedMaxAge = 3 * time.Second
	// partsMaxAge is how old what is known of listeners, pools and members may be, where the load balancer itself shows no other ones.
	partsMaxAge = 5 * time.Minute
	// subnetsMaxAge is how old the list of subnets may be, which rarely change.
	subnetsMaxAge = 5 * time.Minute
)

// observation holds the cloud's objects of a Service.
type observation struct {
	// lb is nil where there is no load balancer; parts are nil until they are read.
	lb    *loadBalancer
	parts *details
	// group is the Service's own security group; it is read only where the Service goes.
	group *securityGroup
	// deletable is set where the load balancer was made for the Service.
	deletable bool
	// left are load balancers that the Service had under other names, and unproved is one that nothing shows to be the Service's or
	// anybody else's; they are looked for only where the Service goes.
	left     []*loadBalancer
	unproved *loadBalancer
	// foreign is set where there is one that is somebody else's.
	foreign bool
	// missing are host names that a Service shows which goes, and nothing has.
	missing []string
}

type change = services.Change[observation]

// reconciler implements services.Reconciler.
type reconciler struct {
	*balancers
	config    Config
	adopt     registry.Adoption
	cluster   ownership.Cluster
	instances *instances
	// made are the whole names of load balancers of Services of this cluster, alike those that were cut as well.
	made, alike *regexp.Regexp
	// proved are the UIDs of the Services whose load balancers this process has made, or seen to be theirs, by the ID of the load
	// balancer: Kubernetes takes away what shows it when a Service becomes one of another type.
	proved sync.Map
	// kept are the IDs of load balancers that were adopted: a record that somebody takes away, as by replacing the Service, is written again.
	kept sync.Map
	// deleted are the host names of load balancers that this process deleted.
	deleted sync.Map
	// kube writes records; nil writes none.
	kube kubernetes.Interface
}

func newReconciler(a *api, i *instances, adopt registry.Adoption) *reconciler {
	own := `^` + regexp.QuoteMeta(namePrefix+a.config.Cluster) + `-[0-9a-f]`
	return &reconciler{
		balancers: newBalancers(a, i.seesVPC), config: a.config, adopt: adopt, instances: i,
		made: regexp.MustCompile(own + `{32}$`), alike: regexp.MustCompile(own + `{1,32}$`),
	}
}

var (
	_ services.Reconciler[observation, spec] = (*reconciler)(nil)
	_ services.Asynchronous[observation]     = (*reconciler)(nil)
	_ services.Misser[observation]           = (*reconciler)(nil)
)

// newLoadBalancers returns those of a reconciler. Names are unique in a VPC.
func newLoadBalancers(r *reconciler) *services.LoadBalancer[observation, spec] {
	return &services.LoadBalancer[observation, spec]{
		Reconciler: r, Name: r.name, Creations: services.Creations{Shows: creationShows, Repeat: true}, Patience: busyPatience,
		Identify: r.instances.found.Identify,
	}
}

// name is that of a Service's load balancer.
func (r *reconciler) name(_ string, service *v1.Service) string {
	return cmp.Or(r.chosenName(service), ownName(r.config.Cluster, service))
}

// chosenName is the name that an annotation chooses; "" where the load balancer has the Service's own.
func (r *reconciler) chosenName(service *v1.Service) string {
	if name := service.Annotations[annotationName]; nameForm.MatchString(name) && name != ownName(r.config.Cluster, service) {
		return name
	}
	return ""
}

// Validate judges the Service by itself.
func (*reconciler) Validate(q services.Request) ([]services.Finding, error) {
	_, warnings, err := parseSettings(q.Service)
	return services.Judged(warnings, err), err
}

// Key implements services.Asynchronous.
func (*reconciler) Key(_ services.Request, o observation) string {
	if o.lb == nil {
		return ""
	}
	return o.lb.ID
}

// Settle implements services.Asynchronous: it reads what the changes are computed from. The cloud's own work is waited for only where there
// is something to change.
func (r *reconciler) Settle(ctx context.Context, q *services.Request, o observation) (observation, error) {
	if o.lb == nil || o.parts != nil || q.Purpose == services.Delete {
		return o, nil
	}
	lb, err := r.known.Get(ctx, o.lb.ID, inventory.Query{MaxAge: observedMaxAge})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound) && q.Purpose == services.Ensure:
		return observation{}, services.ErrGone
	case errors.Is(err, cloudapi.ErrNotFound):
		return observation{group: o.group, left: o.left}, nil
	case err != nil:
		return o, err
	}
	o.lb, o.parts, err = r.partsOf(ctx, lb)
	return o, err
}

// errNoNodes keeps a Service without any usable node from losing all members at once.
func errNoNodes(service *v1.Service, why string) error {
	return fmt.Errorf("%s for Service %s/%s; what there is stays as it is", why, service.Namespace, service.Name)
}

// Desire computes what should be there.
func (r *reconciler) Desire(ctx context.Context, q services.Request, o observation) (spec, []services.Finding, error) {
	s, _, err := parseSettings(q.Service)
	if err != nil {
		return spec{}, nil, err
	}
	d := spec{name: r.name("", q.Service), public: !s.isPrivate(), network: s.isNetwork(), settings: s, ports: s.ports(q.Service)}
	findings, err := r.findLost(ctx, q.Service, d.name, o)
	if err != nil {
		return d, findings, err
	}
	if o.lb != nil {
		told, err := r.judge(ctx, q, s, o)
		if findings = append(findings, told...); err != nil {
			return d, append(findings, services.Warning(eventConfigError, "%v", err)), err
		}
		if d.network = o.lb.isNetwork(); !d.network {
			s.Ranges = "" // which application load balancers do not have
			d.ports = s.ports(q.Service)
		}
	}
	var more []services.Finding
	var subnets []string
	if o.lb == nil {
		if subnets, more, err = r.newSubnets(ctx, q, s); err != nil {
			return d, append(findings, more...), err
		}
	}
	if o.lb == nil && isControllerName(r.chosenName(q.Service)) {
		err = refuseFor(annotationName, d.name, "is of the form of the names that controllers give to the load balancers of other Services, "+
			"and there is none of this name to be had; choose another name")
		return d, append(findings, services.Warning(eventConfigError, "%v", err)), err
	}
	if o.lb != nil {
		if d.subnets, err = r.otherSubnets(ctx, s, o); err != nil {
			return d, append(findings, services.Warning(eventConfigError, "%v", err)), err
		}
	}
	if d.members, more, err = r.members(ctx, q, s, d.network, o); err != nil {
		return d, append(findings, append(more, services.Warning(eventConfigError, "%v", err))...), err
	}
	findings = append(findings, more...)
	if d.access, more, err = r.access(ctx, q, s, o); err != nil {
		return d, append(findings, more...), err
	}
	findings = append(findings, more...)
	if o.lb == nil {
		more, err = r.desireNew(ctx, subnets, &d)
		findings = append(findings, more...)
	}
	return d, findings, err
}

// members are the targets of the nodes. Network load balancers take only instances that exist.
func (r *reconciler) members(
	ctx context.Context, q services.Request, s settings, network bool, o observation,
) ([]target, []services.Finding, error) {
	if len(q.Nodes) == 0 {
		return nil, nil, errNoNodes(q.Service, "no node can be a backend")
	}
	nodes := s.receivingNodes(q.Nodes)
	if len(nodes) == 0 {
		return nil, nil, errNoNodes(q.Service, "no node has the label or the zone of the annotations")
	}
	receivers, others, err := r.instances.receivers(ctx, nodes, network)
	if err != nil {
		return nil, nil, err
	}
	have := currentTargets(o.parts)
	kept, findings := keepUnconfirmed(others, have)
	receivers = append(receivers, kept...)
	list, left := s.targets(q.Service, receivers, have)
	if len(list) == 0 {
		return nil, findings, errNoNodes(q.Service, "none of the available nodes has an address or an instance")
	}
	if left > 0 {
		findings = append(findings, services.Warning(eventTooMany,
			"a pool takes %d members at most, so that %d nodes receive no traffic; choose nodes by %s or %s, or set externalTrafficPolicy", ibmlimits.Members.Max, left,
			annotationNodeSelector, annotationQuota))
	}
	return list, append(findings, removalFindings(q, receivers, network, have)...), nil
}

// judge says what cannot be changed about a load balancer, and what is kept as it is.
func (r *reconciler) judge(ctx context.Context, q services.Request, s settings, o observation) (findings []services.Finding, err error) {
	word := map[bool]string{true: "public", false: "private"}
	kind := map[bool]string{true: "network", false: "application"}
	switch {
	case o.lb.Provisioning == stateFailed:
		return []services.Finding{services.Warning(eventFailed, "load balancer %s has failed; its page in the console, or IBM's support, tells why", o.lb.Name)},
			fmt.Errorf("load balancer %s is %s/%s; it is made again when it, or the Service, is deleted", o.lb.Name, o.lb.Operating, o.lb.Provisioning)
	case o.lb.Public == s.isPrivate():
		return nil, refuseFor(annotationIPType, s.IPType, "comes too late: the load balancer is %s, which IBM Cloud never changes; make the Service again", word[o.lb.Public])
	case o.lb.isNetwork() && !s.isNetwork():
		return nil, refuseFor(annotationFeatures, s.Features, "comes too late: the load balancer is %s, which IBM Cloud never changes; make the Service again", kind[true])
	case !o.lb.isNetwork() && s.isNetwork() && slices.ContainsFunc(q.Service.Spec.Ports, func(p v1.ServicePort) bool {
		return p.Protocol == v1.ProtocolUDP
	}):
		return nil, refuseFor(annotationFeatures, s.Features, "comes too late: the load balancer is %s, which serves no UDP; make the Service again", kind[false])
	case !o.lb.isNetwork() && s.isNetwork():
		findings = append(findings, services.Warning(eventOtherKind, "load balancer %s was created as an application load balancer, and is kept so", o.lb.Name))
	}
	if s.Subnets == "" || !o.lb.isNetwork() { // those of an application load balancer can be changed
		return findings, nil
	}
	all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: subnetsMaxAge})
	if err != nil {
		return findings, err
	}
	want, err := s.namedSubnets(all, r.config.Subnets)
	have := o.lb.subnets()
	if err == nil && !services.SameSet(have, want) {
		err = refuseFor(annotationSubnets, s.Subnets, "come too late: the load balancer is in subnets %s, which IBM Cloud never changes; make the Service again", strings.Join(have, " "))
	}
	return findings, err
}

// Fixed implements services.Fixer.
func (*reconciler) Fixed(_ context.Context, _ services.Request, o observation, d spec) ([]services.Fixed, error) {
	if o.lb == nil {
		return nil, nil
	}
	s, has := d.settings, dnsRequest{}
	if o.lb.DNS != nil {
		has = *o.lb.DNS
	}
	if s.DNSInstance == "" || s.DNSZone == "" {
		return nil, nil // both are needed
	}
	return []services.Fixed{
		services.Single(annotationDNSInstance, s.DNSInstance, has.Instance.CRN),
		services.Single(annotationDNSZone, s.DNSZone, has.Zone.ID),
	}, nil
}

// otherSubnets are those that an application load balancer is to have instead of its own; nil leaves them as they are, as where the
// annotation was removed.
func (r *reconciler) otherSubnets(ctx context.Context, s settings, o observation) ([]reference, error) {
	if s.Subnets == "" || o.lb.isNetwork() {
		return nil, nil
	}
	all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: subnetsMaxAge})
	if err != nil {
		return nil, err
	}
	want, err := s.namedSubnets(all, r.config.Subnets)
	if err != nil || services.SameSet(o.lb.subnets(), want) {
		return nil, err
	}
	var list []reference
	for _, id := range want {
		list = append(list, reference{ID: id})
	}
	return list, nil
}

// newSubnets are those of a load balancer that does not exist.
func (r *reconciler) newSubnets(ctx context.Context, q services.Request, s settings) ([]string, []services.Finding, error) {
	all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: subnetsMaxAge})
	if err != nil {
		return nil, nil, err
	}
	ids, err := s.subnetsFor(all, r.config.Subnets)
	if err != nil {
		return nil, []services.Finding{services.Warning(eventConfigError, "%v", err)}, err
	}
	if s.isNetwork() {
		ids = r.chooseSubnet(ctx, ids, all, s.receivingNodes(q.Nodes))
	}
	return ids, nil, nil
}

// desireNew completes what is asked of a load balancer that does not exist.
func (r *reconciler) desireNew(ctx context.Context, subnets []string, d *spec) (findings []services.Finding, err error) {
	group, err := r.resourceGroup(ctx)
	if err != nil {
		if errors.Is(err, cloudapi.ErrInvalid) {
			findings = append(findings, services.Warning(eventConfigError, "%v", err))
		}
		return findings, err
	}
	d.create = d.creation(group, subnets)
	return nil, nil
}

// chooseSubnet chooses the subnet of a network load balancer: in a zone with nodes, that of the fewest network load balancers of the
// cluster, and then of the most nodes.
func (r *reconciler) chooseSubnet(ctx context.Context, ids []string, all []subnet, nodes []*v1.Node) []string {
	zones, count := map[string]string{}, map[string]int{}
	for _, n := range all {
		zones[n.ID] = n.Zone.Name
	}
	for _, n := range nodes {
		count[zoneOf(n)]++
	}
	used, names := map[string]int{}, map[string]bool{}
	services, _ := r.cluster.Services(ctx) // without them the zones count as equal
	for _, s := range services {
		names[r.name("", s)] = true
	}
	for _, lb := range r.known.PeekAll() {
		if lb.isNetwork() && len(lb.Subnets) > 0 && names[lb.Name] {
			used[zones[lb.Subnets[0].ID]]++
		}
	}
	slices.SortStableFunc(ids, func(a, b string) int {
		za, zb := zones[a], zones[b]
		if (count[za] > 0) != (count[zb] > 0) {
			return map[bool]int{true: -1, false: 1}[count[za] > 0]
		}
		if used[za] != used[zb] {
			return used[za] - used[zb]
		}
		return count[zb] - count[za]
	})
	return ids[:min(len(ids), 1)]
}

// Complete waits for what the status needs: an application load balancer has its host name at once, and a network load balancer its address
// when it is ready.
func (r *reconciler) Complete(ctx context.Context, q *services.Request, o observation, d spec) (observation, error) {
	if err := r.noteAfter(ctx, q, o); err != nil {
		return o, err
	}
	if o.lb == nil || isReady(o.lb) {
		return o, nil
	}
	ctx, cancel := context.WithTimeout(ctx, busyPatience)
	defer cancel()
	lb, err := r.room.Until(ctx, o.lb.ID, "load balancer "+o.lb.Name, func(lb *loadBalancer) bool { return isReady(lb) || lb.Provisioning == stateFailed })
	if err != nil {
		return o, retryLater(err, o.lb.Name)
	}
	o.lb = lb
	return o, nil
}

// isReady reports whether a load balancer shows what the status needs.
func isReady(lb *loadBalancer) bool {
	return lb.Hostname != "" && (!lb.isNetwork() || (lb.Provisioning == stateActive && lb.ip() != ""))
}

// Status is that of the Service.
func (*reconciler) Status(_ services.Request, o observation, _ spec) (*v1.LoadBalancerStatus, error) {
	if !isReady(o.lb) {
		return nil, cloudproviderapi.NewRetryError("the load balancer "+o.lb.Name+" is being set up", lookAgain)
	}
	return statusOf(o.lb), nil
}

func statusOf(lb *loadBalancer) *v1.LoadBalancerStatus {
	if lb.Hostname == "" {
		return &v1.LoadBalancerStatus{}
	}
	in := v1.LoadBalancerIngress{Hostname: lb.Hostname}
	if lb.isNetwork() {
		in.IP = lb.ip()
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{in}}
}

// Exists implements services.Reconciler.
func (*reconciler) Exists(_ context.Context, _ services.Request, o observation) (*v1.LoadBalancerStatus, bool, error) {
	if o.lb == nil { // what stays counts as well, so that somebody is told of it
		return nil, o.group != nil || o.unproved != nil || len(o.left) > 0, nil
	}
	return statusOf(o.lb), true, nil
}
