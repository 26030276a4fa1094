package ibm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
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

// observation is what is there for a Service.
type observation struct {
	// lb is nil where there is no load balancer; parts are nil until they are read.
	lb    *loadBalancer
	parts *details
	// group is the Service's own security group; it is read only where the Service goes.
	group *securityGroup
	// deletable is set where the load balancer was made for the Service.
	deletable bool
}

type change = services.Change[observation]

// reconciler implements services.Reconciler.
type reconciler struct {
	*balancers
	config    Config
	adopt     registry.Adoption
	cluster   ownership.Cluster
	instances *instances
	made      *regexp.Regexp
	// kube writes records; nil writes none.
	kube kubernetes.Interface
}

func newReconciler(a *api, i *instances, adopt registry.Adoption) *reconciler {
	return &reconciler{
		balancers: newBalancers(a, i.seesVPC), config: a.config, adopt: adopt, instances: i,
		made: regexp.MustCompile(`^` + regexp.QuoteMeta(namePrefix+a.config.Cluster) + `-[0-9a-f]{32}$`),
	}
}

var (
	_ services.Reconciler[observation, spec] = (*reconciler)(nil)
	_ services.Asynchronous[observation]     = (*reconciler)(nil)
)

// newLoadBalancers returns those of a reconciler. Names are unique in a VPC.
func newLoadBalancers(r *reconciler) *services.LoadBalancer[observation, spec] {
	return &services.LoadBalancer[observation, spec]{
		Reconciler: r, Name: r.name, Creations: services.Creations{Shows: creationShows, Repeat: true},
	}
}

// name is that of a Service's load balancer.
func (r *reconciler) name(_ string, service *v1.Service) string {
	if name := service.Annotations[annotationName]; nameForm.MatchString(name) {
		return name
	}
	return ownName(r.config.Cluster, service)
}

// problemsOf are findings about settings.
func problemsOf(warnings, err error) []services.Finding {
	var findings []services.Finding
	for _, w := range schema.Problems(warnings) {
		findings = append(findings, services.Warning(eventIgnored, "%v", w))
	}
	if err != nil {
		findings = append(findings, services.Warning(eventConfigError, "%v", err))
	}
	return findings
}

// Validate judges the Service by itself.
func (*reconciler) Validate(q services.Request) ([]services.Finding, error) {
	_, warnings, err := parseSettings(q.Service)
	return problemsOf(warnings, err), err
}

// Observe finds the load balancer by its name, in the VPC of the cluster: other VPCs may have one of the same name. That there is none is
// believed only of a credential that still sees the VPC.
func (r *reconciler) Observe(ctx context.Context, q services.Request) (o observation, err error) {
	if q.Purpose == services.Delete || q.Purpose == services.Lookup {
		if o.group, err = r.goingGroup(ctx, q.Service); err != nil {
			return o, err
		}
	}
	found, err := r.known.Find(ctx, indexName, r.name(q.Cluster, q.Service),
		inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge})
	if err != nil {
		return o, err
	}
	for _, lb := range found {
		ours, err := r.inVPC(ctx, lb)
		if err != nil {
			return o, err
		}
		if ours && lb.Provisioning == stateDeleting {
			if lb, err = r.ended(ctx, q, lb); err != nil || lb == nil {
				return o, err
			}
		}
		if ours {
			o.lb = lb
			return o, nil
		}
	}
	age := observedMaxAge
	if q.Purpose == services.Delete || q.Purpose == services.Lookup {
		age = 0
	}
	return o, r.sees(ctx, age)
}

// ended looks at a load balancer that is being deleted: nil is one that has gone.
func (r *reconciler) ended(ctx context.Context, q services.Request, lb *loadBalancer) (*loadBalancer, error) {
	now, err := r.known.Get(ctx, lb.ID, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return nil, nil //nolint:nilnil // nil is a load balancer that does not exist
	case err != nil:
		return nil, err
	case now.Provisioning == stateDeleting && q.Purpose == services.Ensure:
		return nil, cloudproviderapi.NewRetryError("the load balancer "+lb.Name+" of before is being deleted", lookAgain)
	}
	return now, nil
}

// inVPC reports whether a load balancer is in the VPC of the cluster.
func (r *reconciler) inVPC(ctx context.Context, lb *loadBalancer) (bool, error) {
	for _, age := range []time.Duration{subnetsMaxAge, observedMaxAge} {
		all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: age})
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(lb.Subnets, func(n named) bool {
			return slices.ContainsFunc(all, func(s subnet) bool { return s.ID == n.ID })
		}) {
			return true, nil
		}
	}
	return false, nil
}

// rules decide whose a load balancer is, by its name alone: it takes no mark. A name that an annotation chooses, or that was cut so far
// that others may have it, counts together with the host name in the status, or with the nodes behind it.
func (r *reconciler) rules() ownership.Rules {
	sure := func(s *v1.Service) bool {
		return r.name("", s) == ownName(r.config.Cluster, s) && maxName-len(namePrefix)-1-len(r.config.Cluster) >= leastUID
	}
	names := func(wanted bool) func(*v1.Service) []string {
		return func(s *v1.Service) []string {
			if sure(s) != wanted {
				return nil
			}
			return []string{r.name("", s)}
		}
	}
	return ownership.Rules{Adopt: r.adopt, Unmarked: true, Names: names(true), Likely: names(false), Made: r.made.MatchString}
}

func objectOf(lb *loadBalancer) ownership.Object {
	return ownership.Object{Title: "load balancer " + lb.Name, ID: lb.ID, Name: lb.Name, Addresses: []string{lb.Hostname}}
}

// CheckOwner decides whose the load balancer is.
func (r *reconciler) CheckOwner(ctx context.Context, q services.Request, o observation) (observation, []services.Finding, error) {
	if o.lb == nil {
		return o, nil, nil
	}
	decision, err := r.cluster.Judge(ctx, q.Service, objectOf(o.lb), r.rules(), func(ctx context.Context) (ownership.Targets, error) {
		d, err := r.partsOf(ctx, o.lb)
		return r.targets(ctx, q.Service, d), err
	})
	if err != nil {
		return observation{}, nil, err
	}
	s, _, _ := parseSettings(q.Service)
	o.deletable = decision.Deletable && !s.asked(recordAdopted+o.lb.ID)
	refused := decision.Verdict == ownership.Refused
	wants := q.Purpose == services.Ensure || q.Purpose == services.Plan
	switch {
	case refused && wants:
		return observation{}, services.Refused(q.Service, decision), decision.Err()
	case refused:
		return observation{group: o.group}, nil, nil
	case q.Purpose == services.Plan:
		o.parts, err = r.partsOf(ctx, o.lb)
	}
	return o, nil, err
}

// targets are the members behind the node ports of a Service: another cluster's nodes may have the same addresses, and another Service's
// pools have other ports.
func (r *reconciler) targets(ctx context.Context, service *v1.Service, d *details) (t ownership.Targets) {
	if d == nil {
		return t
	}
	nodes := map[target]bool{}
	for _, n := range r.instances.nodes.Nodes() {
		nodes[toldBy(n, false)], nodes[toldBy(n, true)] = true, true
	}
	delete(nodes, target{})
	left := r.leftBy(ctx, service, d)
	for _, p := range d.pools {
		for _, m := range p.Members {
			t.All++
			serves := slices.ContainsFunc(service.Spec.Ports, func(p v1.ServicePort) bool { return int(p.NodePort) == m.Port })
			if nodes[m.Target] && (serves || left) {
				t.Ours++
			}
			t.Ports = append(t.Ports, int32(m.Port)) //nolint:gosec // a port
		}
	}
	return t
}

// leftBy reports whether pools are what a Service leaves that has become one of another type: Kubernetes takes away its node ports and its
// status. Each is named as a controller names it, after a port of the Service and a node port, which no other Service has.
func (r *reconciler) leftBy(ctx context.Context, service *v1.Service, d *details) bool {
	others, err := r.cluster.Services(ctx)
	if err != nil || service.Spec.Type == v1.ServiceTypeLoadBalancer || len(d.pools) == 0 {
		return false
	}
	has := func(s *v1.Service, is func(v1.ServicePort) bool) bool { return slices.ContainsFunc(s.Spec.Ports, is) }
	for _, p := range d.pools {
		nodePort, _ := strconv.Atoi(p.Name[strings.LastIndex(p.Name, "-")+1:])
		named := has(service, func(sp v1.ServicePort) bool {
			one := port{protocol: strings.ToLower(string(sp.Protocol)), port: int(sp.Port), nodePort: nodePort}
			return sp.NodePort == 0 && nodePort != 0 && one.pool() == p.Name
		})
		taken := slices.ContainsFunc(others, func(s *v1.Service) bool {
			return s.UID != service.UID && has(s, func(sp v1.ServicePort) bool { return int(sp.NodePort) == nodePort })
		})
		if !named || taken || slices.ContainsFunc(p.Members, func(m member) bool { return m.Port != nodePort }) {
			return false
		}
	}
	return true
}

// partsOf reads listeners, pools and members, unless what is known of them still is what the load balancer shows.
func (r *reconciler) partsOf(ctx context.Context, lb *loadBalancer) (*details, error) {
	d, err := r.parts.Get(ctx, lb.ID, inventory.Query{MaxAge: partsMaxAge})
	if err == nil && d.shown() != lb.shownParts() {
		d, err = r.parts.Get(ctx, lb.ID, inventory.Query{})
	}
	return d, cloudapi.NotAbsence(err)
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
		return observation{group: o.group}, nil
	case err != nil:
		return o, err
	}
	o.lb = lb
	o.parts, err = r.partsOf(ctx, lb)
	return o, err
}

// errNoNodes keeps a Service without any usable node from losing all members at once.
func errNoNodes(service *v1.Service, why string) error {
	return fmt.Errorf("%s for load balancer service %s/%s; what there is stays as it is", why, service.Namespace, service.Name)
}

// Desire computes what should be there.
func (r *reconciler) Desire(ctx context.Context, q services.Request, o observation) (spec, []services.Finding, error) {
	s, _, err := parseSettings(q.Service)
	if err != nil {
		return spec{}, nil, err
	}
	d := spec{name: r.name("", q.Service), public: !s.private(), network: s.network(), settings: s, ports: s.ports(q.Service)}
	var findings []services.Finding
	if o.lb != nil {
		if findings, err = r.judge(ctx, q, s, o); err != nil {
			return d, append(findings, services.Warning(eventConfigError, "%v", err)), err
		}
		d.network = o.lb.network()
	}
	var more []services.Finding
	var subnets []string
	if o.lb == nil {
		if subnets, more, err = r.newSubnets(ctx, q, s); err != nil {
			return d, append(findings, more...), err
		}
	}
	if o.lb != nil {
		if d.subnets, err = r.otherSubnets(ctx, q, s, o); err != nil {
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
		more, err = r.desireNew(ctx, q, subnets, &d)
		findings = append(findings, more...)
	}
	return d, findings, err
}

// members are the targets of the nodes. Network load balancers take only instances that exist.
func (r *reconciler) members(
	ctx context.Context, q services.Request, s settings, network bool, o observation,
) ([]target, []services.Finding, error) {
	if len(q.Nodes) == 0 {
		return nil, nil, errNoNodes(q.Service, "there are no available nodes")
	}
	nodes := s.receive(q.Nodes)
	if len(nodes) == 0 {
		return nil, nil, errNoNodes(q.Service, "no available nodes have the label or the zone of the annotations")
	}
	receivers, err := r.instances.receivers(ctx, nodes, network)
	if err != nil {
		return nil, nil, err
	}
	list, left := s.targets(q.Service, receivers, current(o.parts))
	if len(list) == 0 {
		return nil, nil, errNoNodes(q.Service, "none of the available nodes has an address or an instance")
	}
	if left > 0 {
		return list, []services.Finding{services.Warning(eventTooMany,
			"a pool takes %d members at most, so that %d nodes receive no traffic; choose nodes by %s or %s, or set externalTrafficPolicy", maxMembers, left,
			annotationNodeSelector, annotationQuota)}, nil
	}
	return list, nil, nil
}

// judge says what cannot be changed about a load balancer, and what is kept as it is.
func (r *reconciler) judge(ctx context.Context, q services.Request, s settings, o observation) (findings []services.Finding, err error) {
	word := map[bool]string{true: "public", false: "private"}
	kind := map[bool]string{true: "network", false: "application"}
	switch {
	case o.lb.Provisioning == stateFailed:
		return []services.Finding{services.Warning(eventFailed, "load balancer %s has failed; see https://ibm.biz/vpc-lb-ts", o.lb.Name)},
			fmt.Errorf("load balancer %s is %s/%s; it is made again when it, or the Service, is deleted", o.lb.Name, o.lb.Operating, o.lb.Provisioning)
	case o.lb.Public == s.private():
		return nil, refuseFor(annotationIPType, s.IPType, "load balancer was created as a %s load balancer. This setting can not be changed", word[o.lb.Public])
	case o.lb.network() && !s.network():
		return nil, refuseFor(annotationFeatures, s.Features, "load balancer was created as a %s load balancer. This setting can not be changed", kind[true])
	case !o.lb.network() && s.network() && slices.ContainsFunc(q.Service.Spec.Ports, func(p v1.ServicePort) bool {
		return p.Protocol == v1.ProtocolUDP
	}):
		return nil, refuseFor(annotationFeatures, s.Features, "load balancer was created as an %s load balancer, which serves no UDP. Make the Service again", kind[false])
	case !o.lb.network() && s.network():
		findings = append(findings, services.Warning(eventOtherKind, "load balancer %s was created as an application load balancer, and is kept so", o.lb.Name))
	}
	if s.Subnets == "" || !o.lb.network() { // those of an application load balancer can be changed
		return findings, nil
	}
	all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: subnetsMaxAge})
	if err != nil {
		return findings, err
	}
	want, err := s.namedSubnets(q.Service, all, r.config.Subnets)
	have := o.lb.subnets()
	if err == nil && !services.SameSet(have, want) {
		err = refuseFor(annotationSubnets, s.Subnets, "load balancer was created with subnets %s. This setting can not be changed", strings.Join(have, " "))
	}
	return findings, err
}

// otherSubnets are those that an application load balancer is to have instead of its own; nil leaves them as they are, as where the
// annotation was removed.
func (r *reconciler) otherSubnets(ctx context.Context, q services.Request, s settings, o observation) ([]named, error) {
	if s.Subnets == "" || o.lb.network() {
		return nil, nil
	}
	all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: subnetsMaxAge})
	if err != nil {
		return nil, err
	}
	want, err := s.namedSubnets(q.Service, all, r.config.Subnets)
	if err != nil || services.SameSet(o.lb.subnets(), want) {
		return nil, err
	}
	var list []named
	for _, id := range want {
		list = append(list, named{ID: id})
	}
	return list, nil
}

// newSubnets are those of a load balancer that does not exist.
func (r *reconciler) newSubnets(ctx context.Context, q services.Request, s settings) ([]string, []services.Finding, error) {
	all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: subnetsMaxAge})
	if err != nil {
		return nil, nil, err
	}
	ids, err := s.subnetsFor(q.Service, all, r.config.Subnets)
	if err != nil {
		return nil, []services.Finding{services.Warning(eventConfigError, "%v", err)}, err
	}
	if s.network() {
		ids = r.oneSubnet(ctx, ids, all, s.receive(q.Nodes))
	}
	return ids, nil, nil
}

// desireNew completes what is asked of a load balancer that does not exist.
func (r *reconciler) desireNew(ctx context.Context, q services.Request, subnets []string, d *spec) ([]services.Finding, error) {
	findings := r.lost(q.Service, d.name)
	group, err := r.resourceGroup(ctx)
	if err != nil {
		if errors.Is(err, cloudapi.ErrInvalid) {
			findings = append(findings, services.Warning(eventConfigError, "%v", err))
		}
		return findings, err
	}
	d.create = d.creation(group, subnets)
	return findings, nil
}

// oneSubnet chooses the subnet of a network load balancer: in a zone with nodes, that of the fewest network load balancers of the cluster,
// and then of the most nodes.
func (r *reconciler) oneSubnet(ctx context.Context, ids []string, all []subnet, nodes []*v1.Node) []string {
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
		if lb.network() && len(lb.Subnets) > 0 && names[lb.Name] {
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

// lost tells of what a Service shows and is not its load balancer any more.
func (r *reconciler) lost(service *v1.Service, name string) []services.Finding {
	for _, in := range service.Status.LoadBalancer.Ingress {
		if in.Hostname == "" {
			continue
		}
		for _, lb := range r.known.PeekAll() {
			if strings.EqualFold(lb.Hostname, in.Hostname) && lb.Name != name {
				return []services.Finding{services.Warning(eventLeft, "load balancer %s (%s) stays, and %s takes its place; delete it if nobody needs it", lb.Name, lb.ID, name)}
			}
		}
		return []services.Finding{services.Warning(eventGone, "load balancer %s with the host name %s is there no longer; it is made again, with another host name", name, in.Hostname)}
	}
	return nil
}

// Complete waits for what the status needs: an application load balancer has its host name at once, and a network load balancer its address
// when it is ready.
func (r *reconciler) Complete(ctx context.Context, q *services.Request, o observation, d spec) (observation, error) {
	if err := r.noteAfter(ctx, q, o); err != nil {
		return o, err
	}
	if o.lb == nil || ready(o.lb) {
		return o, nil
	}
	ctx, cancel := context.WithTimeout(ctx, busyPatience)
	defer cancel()
	lb, err := r.room.Until(ctx, o.lb.ID, "load balancer "+o.lb.Name, func(lb *loadBalancer) bool { return ready(lb) || lb.Provisioning == stateFailed })
	if err != nil {
		return o, later(err, o.lb.Name)
	}
	o.lb = lb
	return o, nil
}

// ready reports whether a load balancer shows what the status needs.
func ready(lb *loadBalancer) bool {
	return lb.Hostname != "" && (!lb.network() || (lb.Provisioning == stateActive && lb.ip() != ""))
}

// Status is that of the Service.
func (*reconciler) Status(_ services.Request, o observation, _ spec) (*v1.LoadBalancerStatus, error) {
	if !ready(o.lb) {
		return nil, cloudproviderapi.NewRetryError("the load balancer "+o.lb.Name+" is being set up", lookAgain)
	}
	return statusOf(o.lb), nil
}

func statusOf(lb *loadBalancer) *v1.LoadBalancerStatus {
	if lb.Hostname == "" {
		return &v1.LoadBalancerStatus{}
	}
	in := v1.LoadBalancerIngress{Hostname: lb.Hostname}
	if lb.network() {
		in.IP = lb.ip()
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{in}}
}

// Exists implements services.Reconciler.
func (*reconciler) Exists(_ context.Context, _ services.Request, o observation) (*v1.LoadBalancerStatus, bool, error) {
	if o.lb == nil {
		return nil, o.group != nil, nil
	}
	return statusOf(o.lb), true, nil
}
