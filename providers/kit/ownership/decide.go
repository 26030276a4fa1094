package ownership

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// This file decides who owns a load balancer. It makes no calls.

// Object is a load balancer, reduced to the evidence of its owner.
type Object struct {
	// Title names it in messages, such as "load balancer 4de7ac8b"; ID is what Services record.
	Title, ID string
	Name      string
	// Marks are its tags; those without a mark's form are ignored.
	Marks []string
	// Addresses are its IP addresses, and host names that the cloud assigns, as a Service's status shows them. Names that an annotation can
	// put into a status are left out.
	Addresses []string
}

// Targets are the destinations of a load balancer's traffic.
type Targets struct {
	// All is the number of targets, Ours the number of those that are nodes of this cluster.
	All, Ours int
	// Ports are the ports on the targets.
	Ports []int32
	// Made is set if all parts of the load balancer have the names that a controller would give them for this Service and its ports.
	Made bool
	// Strange is set if there are targets, and none of them is, or claims to be, a node of this cluster.
	Strange bool
}

// Rules decide ownership for all Services of a cloud.
type Rules struct {
	// Adopt is the operator's policy.
	Adopt registry.Adoption
	// Unmarked is set where this program may not write marks.
	Unmarked bool
	// Names returns the names that the cloud's own controller, or this program, gives to the load balancer of this Service alone. Names
	// chosen by an annotation are not among them.
	Names func(*v1.Service) []string
	// Likely returns names that a controller gives to the load balancer of a Service, and that another cluster may have used as well, such
	// as those derived from cluster names. They count only together with the address or the targets.
	Likely func(*v1.Service) []string
	// Chosen returns names that an annotation of a Service chooses, on clouds that find load balancers by them and have no marks. Anybody
	// may have used such a name, and may send traffic to the Service's node ports. They count with a record that proves it, or with the
	// address in the status. They also count if all of these hold: a record from before the creation, parts that only a controller creates,
	// and nodes of this cluster.
	Chosen func(*v1.Service) []string
	// Recorded reports whether the annotations of a Service record the object together with its address or port. For a chosen name, a
	// record of the coming creation counts.
	Recorded func(*v1.Service) bool
	// Proved reports whether the annotations of a Service record that the object was created for it, in a form that only this program can
	// write; nil means that no record proves anything.
	Proved func(*v1.Service) bool
	// Copied reports whether the annotations of a Service record that another cluster created an object of its chosen name: the Service,
	// with its status, was restored from there. A status without any record then needs targets of this cluster as well.
	Copied func(*v1.Service) bool
	// Made reports whether a name has the form that a controller gives to load balancers of Services; nil means that names do not show it.
	Made func(name string) bool
	// Record returns the ID that the annotations of a Service record or request.
	Record func(*v1.Service) string
	// Shares reports whether another Service may use the object as well; nil means that none may.
	Shares func(*v1.Service) bool
}

// Facts is the input of Decide.
type Facts struct {
	Service *v1.Service
	// Mark is this cluster's; "" if it is unknown.
	Mark   string
	Object Object
	// Targets is nil until it is needed.
	Targets *Targets
	// Others are the other Services of the cluster.
	Others []*v1.Service
	Rules
}

// Verdict says whether a Service may use an object.
type Verdict string

// Verdicts.
const (
	// Owned: it was created for this Service.
	Owned Verdict = "owned"
	// Adopted: the Service may use and change it.
	Adopted Verdict = "adopted"
	// Refused: it belongs to another owner.
	Refused Verdict = "refused"
)

// Decision is a verdict and its reasons.
type Decision struct {
	Verdict Verdict
	// Deletable is set if a controller created the object for this Service, or for one of its namespace and name. Any other object is never
	// deleted, and gets no name or mark that would later make it pass for this Service's: it is a user's, or was retained on purpose.
	Deletable bool
	// Object is the title of the object.
	Object string
	// Who owns it, as text, and the Service if it is one; set if it is refused.
	Who    string
	Owner  *v1.Service
	advice string
	// TargetsMayTell is set if knowing the targets could change the decision.
	TargetsMayTell bool
}

// Err returns the NotOursError of a refusal, else nil.
func (d Decision) Err() error {
	if d.Verdict != Refused {
		return nil
	}
	return &NotOursError{Object: d.Object, Owner: d.Who, Advice: d.advice}
}

func (d Decision) refuse(who string, owner *v1.Service) Decision {
	d.Verdict, d.Deletable, d.Who, d.Owner = Refused, false, who, owner
	return d
}

// Refuse returns a refusal for a reason of the cloud's own: the owner, the Service if it is one, and the advice.
func Refuse(object, who string, owner *v1.Service, advice string) Decision {
	d := Decision{Object: object, advice: advice}
	return d.refuse(who, owner)
}

// Decide decides who owns an object, by evidence that only a controller or the operator can write, in this order: marks in the cloud, the
// name with the Service's identity, the address in a Service's status (which authors of Services may not write), and the targets, because
// no two Services have the same node port. Annotations and ages prove nothing, and a name that another cluster may have used proves
// something only together with other evidence. A deleted Service's node ports are reused: they do not give away an object with traces of
// another owner.
func Decide(f Facts) Decision {
	d := Decision{Object: f.Object.Title}
	if err := Check(f.Object.Title, f.Mark, f.Object.Marks); err != nil {
		return d.refuse(err.(*NotOursError).Owner, nil) //nolint:errorlint,forcetypeassert // Check returns no other
	}
	ours := f.Mark != "" && slices.Contains(f.Object.Marks, f.Mark)
	if slices.Contains(f.Object.Marks, ServiceMark(f.Service.UID)) {
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object}
	}
	if other := f.findOther(func(s *v1.Service) bool { return slices.Contains(f.Object.Marks, ServiceMark(s.UID)) }); other != nil {
		return d.refuse(serviceName(other), other)
	}
	if f.isNamedBy(f.Service) {
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object}
	}
	if other := f.findOther(f.isNamedBy); other != nil {
		return d.refuse(serviceName(other), other)
	}
	if f.hasLikelyName(f.Service) {
		return f.decideByLikelyName(d, ours)
	}
	if other := f.findOther(f.hasLikelyName); other != nil {
		return d.refuse(serviceName(other), other)
	}
	if f.hasChosenName(f.Service) {
		return f.decideByChosenName(d)
	}
	if _, uid := Marked(f.Object.Marks); uid != "" && !ours {
		return d.refuse("a Service with the UID "+uid+", which is not of this cluster", nil)
	}
	return f.decideByStatus(d, ours)
}

// decideByLikelyName decides about an object whose name another cluster may have used, too: it belongs to the Service if the mark of the
// cluster, the address in the status or a target node of the cluster says so. For an object without targets and users the record is enough.
func (f Facts) decideByLikelyName(d Decision, ours bool) Decision {
	byTargets := f.Targets != nil && (f.Targets.Ours > 0 || (f.Targets.All == 0 && f.Recorded != nil && f.Recorded(f.Service)))
	switch {
	case ours, f.isInStatus(f.Service), byTargets:
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object}
	}
	if other := f.findOther(f.isInStatus); other != nil { // names of Services of this cluster may be alike
		return d.refuse(serviceName(other), other)
	}
	if f.Adopt == registry.AdoptAny {
		d.Verdict, d.TargetsMayTell = Adopted, f.Targets == nil
		return d
	}
	d.TargetsMayTell = f.Targets == nil
	d.advice = "if it is this Service's, let the operator allow it for once (--adopt-load-balancers=any); otherwise give the clusters different names (--cluster-name)"
	return d.refuse("another cluster of the same name, as far as can be told: it has this Service's name, but no mark of this cluster, not the address in the Service's status, and no node of this cluster among its targets", nil)
}

// decideByChosenName decides about an object whose name an annotation of the Service chooses.
func (f Facts) decideByChosenName(d Decision) Decision {
	served := f.isInStatus(f.Service)
	if other := f.findOther(func(s *v1.Service) bool { return f.isInStatus(s) && (!served || isOlder(s, f.Service)) }); other != nil {
		return d.refuse(serviceName(other), other)
	}
	switch {
	case f.isProved():
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object}
	case served && !f.isRestored(), f.isAboutToBeMade() && f.isMadeHere():
		ask := f.Copied != nil && f.Targets == nil && !f.isAboutToBeMade()
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object, TargetsMayTell: ask}
	}
	d.TargetsMayTell = f.isAboutToBeMade() && f.Targets == nil
	if f.Adopt == registry.AdoptAny { // the first Service that chooses the name may have it
		if other := f.findOther(func(s *v1.Service) bool { return MayHave(s) && f.hasChosenName(s) && isOlder(s, f.Service) }); other != nil {
			return d.refuse(serviceName(other), other)
		}
		d.Verdict = Adopted
		return d
	}
	d.advice = "choose another name, or let the operator allow it for once (--adopt-load-balancers=any)"
	return d.refuse(f.whoChose(served), nil)
}

// whoChose names the owner of an object whose name the Service chooses and which is not the Service's.
func (f Facts) whoChose(served bool) string {
	switch {
	case f.isCopied():
		return "another cluster, as the record on this Service tells, which was restored from there"
	case served:
		return "another cluster, as far as can be told: the Service's status shows it, but it has no node of this cluster among its targets"
	}
	return "somebody else, as far as can be told: an annotation of this Service chooses its name, but neither the Service's status shows it, nor was it made for this Service"
}

func (f Facts) isProved() bool { return f.Proved != nil && f.Proved(f.Service) }

func (f Facts) isCopied() bool { return f.Copied != nil && f.Copied(f.Service) }

// isMadeHere reports whether the object has parts that only a controller creates for the Service, and targets nodes of this cluster.
func (f Facts) isMadeHere() bool { return f.Targets != nil && f.Targets.Made && f.Targets.Ours > 0 }

// isRestored reports whether the Service, with its status, was probably restored from another cluster.
func (f Facts) isRestored() bool {
	return f.isCopied() || (f.Targets != nil && f.Targets.Strange && !f.isAboutToBeMade())
}

// isAboutToBeMade reports whether the Service records the coming creation of the object, and its name is not that of a deleted Service or
// of another cluster.
func (f Facts) isAboutToBeMade() bool {
	others := f.Made != nil && f.Made(f.Object.Name)
	return !others && f.Recorded != nil && f.Recorded(f.Service)
}

// decideByStatus decides about an object without a mark or a name of any Service.
func (f Facts) decideByStatus(d Decision, ours bool) Decision {
	served := f.isInStatus(f.Service)
	if other := f.findOther(func(s *v1.Service) bool { return f.isInStatus(s) && (!served || isOlder(s, f.Service)) }); other != nil {
		return d.refuse(serviceName(other), other)
	}
	if ours && slices.Contains(f.Object.Marks, NameMark(f.Service.Namespace, f.Service.Name)) {
		// A Service of this namespace and name retained it.
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object}
	}
	if served && (ours || f.Unmarked || f.Adopt != registry.AdoptNone) {
		retained := slices.ContainsFunc(f.Object.Marks, IsServiceMark)
		return Decision{Verdict: Owned, Deletable: (ours && !retained) || f.Unmarked, Object: d.Object}
	}
	return f.adopt(d, ours)
}

// adopt decides about an object without evidence of any Service.
func (f Facts) adopt(d Decision, ours bool) Decision {
	who := "nobody that can be told: it carries no mark of this cluster, and neither its name nor its targets are this Service's"
	// A Service that gets a reused node port must not get another owner's load balancer with it.
	others := slices.ContainsFunc(f.Object.Marks, IsMark) || (f.Made != nil && f.Made(f.Object.Name))
	switch {
	case ours:
		who = "a Service of this cluster that is gone"
	case others:
		who = "another Service, as its name or its marks tell, which is gone or of another cluster"
	}
	switch {
	case f.Adopt == registry.AdoptAny && !f.Unmarked:
		// Of two Services that request the same object, the first one has it.
		if other := f.findOther(func(s *v1.Service) bool { return f.isRecorded(s) && isOlder(s, f.Service) }); other != nil {
			return d.refuse(serviceName(other), other)
		}
		d.Verdict = Adopted
		return d
	case f.Adopt == registry.AdoptNone || f.Unmarked:
		d.advice = "the operator allows no adoption (--adopt-load-balancers=none); choose another name or ID"
		if f.Unmarked {
			d.advice = "without marks no load balancer can be adopted safely, because it could not be told from one that was created for the Service; choose another name or ID"
		}
		return d.refuse(who, nil)
	}
	d.TargetsMayTell = !others && f.Targets == nil
	if others || f.Targets == nil || !f.targetsOurs() {
		d.advice = "choose another name or ID, or ask the operator to allow it (--adopt-load-balancers=any)"
		return d.refuse(who, nil)
	}
	d.Verdict = Adopted
	return d
}

// findOther returns a living Service other than this one that satisfies a condition.
func (f Facts) findOther(is func(*v1.Service) bool) *v1.Service {
	if i := slices.IndexFunc(f.Others, func(s *v1.Service) bool { return is(s) && (f.Shares == nil || !f.Shares(s)) }); i >= 0 {
		return f.Others[i]
	}
	return nil
}

func (f Facts) isNamedBy(s *v1.Service) bool {
	return f.Names != nil && f.Object.Name != "" && slices.Contains(f.Names(s), f.Object.Name)
}

func (f Facts) hasLikelyName(s *v1.Service) bool {
	return f.Likely != nil && f.Object.Name != "" && slices.Contains(f.Likely(s), f.Object.Name)
}

func (f Facts) hasChosenName(s *v1.Service) bool {
	return f.Chosen != nil && f.Object.Name != "" && slices.Contains(f.Chosen(s), f.Object.Name)
}

// isInStatus reports whether the status of a Service shows the object, and its annotations do not name another one: an address in a status
// outlives its load balancer, and the cloud may assign it again.
func (f Facts) isInStatus(s *v1.Service) bool {
	if id := f.recordOf(s); id != "" && id != f.Object.ID {
		return false
	}
	return slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool {
		return slices.ContainsFunc(f.Object.Addresses, func(a string) bool {
			return a != "" && (a == in.IP || (in.Hostname != "" && strings.EqualFold(a, in.Hostname)))
		})
	})
}

// isRecorded reports whether the annotations of a living Service name the object.
func (f Facts) isRecorded(s *v1.Service) bool {
	return MayHave(s) && f.Object.ID != "" && f.recordOf(s) == f.Object.ID
}

func (f Facts) recordOf(s *v1.Service) string {
	if f.Record == nil {
		return ""
	}
	return f.Record(s)
}

// targetsOurs reports whether the object serves this Service alone: all of its targets are nodes of this cluster, all of its ports node
// ports of this Service, and none of them another Service's.
func (f Facts) targetsOurs() bool {
	t := f.Targets
	if t.All == 0 || t.Ours < t.All || len(t.Ports) == 0 {
		return false
	}
	has := func(s *v1.Service, port int32) bool {
		return port != 0 && slices.ContainsFunc(s.Spec.Ports, func(p v1.ServicePort) bool { return p.NodePort == port })
	}
	if slices.ContainsFunc(t.Ports, func(port int32) bool { return !has(f.Service, port) }) {
		return false
	}
	return f.findOther(func(s *v1.Service) bool {
		return slices.ContainsFunc(t.Ports, func(port int32) bool { return has(s, port) })
	}) == nil
}

// IsShown reports whether the status of a Service shows one of some addresses: what it is made of serves, whoever it was made for.
func IsShown(services []*v1.Service, addresses ...string) bool {
	return slices.ContainsFunc(services, func(s *v1.Service) bool {
		return Facts{Object: Object{Addresses: addresses}}.isInStatus(s)
	})
}

// Holds reports whether a living Service has an object: by its mark, by the name that controllers give to it, by the ID that it records, or
// by the address in its status. Each is enough to make it no orphan. An address counts whatever the annotations say: a Service that an
// annotation is about to move is still served there.
func Holds(s *v1.Service, object Object, rules Rules) bool {
	f := Facts{Object: object, Rules: rules}
	if slices.Contains(object.Marks, ServiceMark(s.UID)) || f.isNamedBy(s) || f.hasLikelyName(s) || f.hasChosenName(s) ||
		(object.ID != "" && f.recordOf(s) == object.ID) {
		return true
	}
	f.Record = nil
	return f.isInStatus(s)
}
