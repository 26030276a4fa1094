package ownership

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// This file decides and calls nobody: whose a load balancer is.

// Object is a load balancer as the cloud shows it, reduced to what tells whose it is.
type Object struct {
	// Title names it in messages, such as "load balancer 4de7ac8b"; ID is what Services record.
	Title, ID string
	Name      string
	// Marks are its tags; those that are no marks say nothing.
	Marks []string
	// Addresses are where it serves, as the status of a Service shows them: IP addresses, and host names that the cloud
	// gives. Names that an annotation can put into a status are left out.
	Addresses []string
}

// Targets is where a load balancer sends its traffic.
type Targets struct {
	// All is how many targets there are, and Ours how many of them are nodes of this cluster.
	All, Ours int
	// Ports are the ports on the targets.
	Ports []int32
	// Made is set where all parts of the load balancer are named as a controller names those of the Service, for ports of it.
	Made bool
	// Strange is set where there are targets, and none of them is, or says that it is, a node of this cluster, whatever its port.
	Strange bool
}

// Rules decide ownership for all Services of a cloud.
type Rules struct {
	// Adopt is the operator's policy.
	Adopt registry.Adoption
	// Unmarked is set where this program may not write marks.
	Unmarked bool
	// Names returns the names that the cloud's own controller, or this program, gives to the load balancer of a Service
	// and to no other one. Names that an annotation chooses are not among them.
	Names func(*v1.Service) []string
	// Likely returns names that a controller gives to the load balancer of a Service, and that another cluster may have
	// given as well, as where the name holds only what clusters are called. They count with the address or the targets.
	Likely func(*v1.Service) []string
	// Chosen returns names that an annotation of a Service chooses, where load balancers are found by them and take no marks. Anybody
	// may have given such a name, and may send traffic to the Service's node ports: they count with a record that proves it, with the
	// address in the status, or where a record from before the creation, what only a controller makes, and nodes of this cluster come
	// together.
	Chosen func(*v1.Service) []string
	// Recorded reports whether the annotations of a Service record the object together with its address or port, or, where its name
	// is chosen, that it is about to be made.
	Recorded func(*v1.Service) bool
	// Proved reports whether the annotations of a Service record that the object was made for it, in a way that only this program can
	// have written; nil means that no record proves anything.
	Proved func(*v1.Service) bool
	// Copied reports whether the annotations of a Service record that an object of its chosen name was made by another cluster: the Service
	// was restored from there, and its status with it. Where it is set, a status without any record needs targets of this cluster as well.
	Copied func(*v1.Service) bool
	// Made reports whether a name has the form that a controller gives to the load balancer of some Service; nil means that
	// the names of the cloud do not tell.
	Made func(name string) bool
	// Record returns the ID that the annotations of a Service record or ask for.
	Record func(*v1.Service) string
	// Shares reports whether another Service may have the object besides this one; nil means that none may.
	Shares func(*v1.Service) bool
}

// Facts is all that Decide looks at.
type Facts struct {
	Service *v1.Service
	// Mark is this cluster's; empty where it is unknown.
	Mark   string
	Object Object
	// Targets is nil until it is known to matter.
	Targets *Targets
	// Others are the other Services of the cluster.
	Others []*v1.Service
	Rules
}

// Verdict says whether a Service may use an object.
type Verdict string

// Verdicts.
const (
	// Owned: it was made for this Service.
	Owned Verdict = "owned"
	// Adopted: the Service may use and change it.
	Adopted Verdict = "adopted"
	// Refused: it is somebody else's.
	Refused Verdict = "refused"
)

// Decision is a verdict and its reasons.
type Decision struct {
	Verdict Verdict
	// Deletable is set where a controller made the object for this Service, or for one of its namespace and name. What is not
	// deletable is never deleted, nor given a name or a mark by which it would later pass for this Service's: it is a user's,
	// or somebody retained it, who wanted it kept.
	Deletable bool
	// Object is the title of the object.
	Object string
	// Who owns it in words, and the Service if it is one, where it is refused.
	Who    string
	Owner  *v1.Service
	advice string
	// TargetsMayTell is set where the decision could be another one if the targets were known.
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

// Refuse is a refusal for a reason of the cloud's own: who has the object, the Service if it is one, and what to do.
func Refuse(object, who string, owner *v1.Service, advice string) Decision {
	d := Decision{Object: object, advice: advice}
	return d.refuse(who, owner)
}

// Decide says whose an object is. What only a controller or the operator can write decides, in this order: marks in the
// cloud, the name that holds the Service's identity, the address in the status of a Service (authors of Services may not
// write the status), and the targets, because no two Services have the same node port. Annotations and ages prove nothing, and a
// name that another cluster may have given proves something only together with one of the others. Node ports are free again
// once their Service is gone: what bears a trace of another one is not given away by them.
func Decide(f Facts) Decision {
	d := Decision{Object: f.Object.Title}
	if err := Check(f.Object.Title, f.Mark, f.Object.Marks); err != nil {
		return d.refuse(err.(*NotOursError).Owner, nil) //nolint:errorlint,forcetypeassert // Check returns no other
	}
	ours := f.Mark != "" && slices.Contains(f.Object.Marks, f.Mark)
	if slices.Contains(f.Object.Marks, ServiceMark(f.Service.UID)) {
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object}
	}
	if other := f.other(func(s *v1.Service) bool { return slices.Contains(f.Object.Marks, ServiceMark(s.UID)) }); other != nil {
		return d.refuse(serviceName(other), other)
	}
	if f.isNamedBy(f.Service) {
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object}
	}
	if other := f.other(f.isNamedBy); other != nil {
		return d.refuse(serviceName(other), other)
	}
	if f.likely(f.Service) {
		return f.decideByLikelyName(d, ours)
	}
	if other := f.other(f.likely); other != nil {
		return d.refuse(serviceName(other), other)
	}
	if f.chosen(f.Service) {
		return f.decideByChosenName(d)
	}
	if _, uid := Marked(f.Object.Marks); uid != "" && !ours {
		return d.refuse("a Service with the UID "+uid+", which is not of this cluster", nil)
	}
	return f.decideByStatus(d, ours)
}

// decideByLikelyName decides about an object whose name another cluster may have given to it, too: it is the Service's if the
// mark of the cluster, the address in the status or a node of the cluster among the targets says so. What has no targets and
// serves nobody is taken on the word of the record.
func (f Facts) decideByLikelyName(d Decision, ours bool) Decision {
	byTargets := f.Targets != nil && (f.Targets.Ours > 0 || (f.Targets.All == 0 && f.Recorded != nil && f.Recorded(f.Service)))
	switch {
	case ours, f.shows(f.Service), byTargets:
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object}
	}
	if other := f.other(f.shows); other != nil { // as where names of Services of this cluster are alike
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

// decideByChosenName decides about an object with a name that an annotation of the Service chooses.
func (f Facts) decideByChosenName(d Decision) Decision {
	served := f.shows(f.Service)
	if other := f.other(func(s *v1.Service) bool { return f.shows(s) && (!served || before(s, f.Service)) }); other != nil {
		return d.refuse(serviceName(other), other)
	}
	switch {
	case f.proved():
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object}
	case served && !f.restored(), f.aboutToBeMade() && f.madeHere():
		ask := f.Copied != nil && f.Targets == nil && !f.aboutToBeMade()
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object, TargetsMayTell: ask}
	}
	d.TargetsMayTell = f.aboutToBeMade() && f.Targets == nil
	if f.Adopt == registry.AdoptAny { // the first of those that choose the name may have it
		if other := f.other(func(s *v1.Service) bool { return MayHave(s) && f.chosen(s) && before(s, f.Service) }); other != nil {
			return d.refuse(serviceName(other), other)
		}
		d.Verdict = Adopted
		return d
	}
	d.advice = "choose another name, or let the operator allow it for once (--adopt-load-balancers=any)"
	return d.refuse(f.whoChose(served), nil)
}

// whoChose says who has an object with a name that an annotation of the Service chooses, and that is not the Service's.
func (f Facts) whoChose(served bool) string {
	switch {
	case f.copied():
		return "another cluster, as the record on this Service tells, which was restored from there"
	case served:
		return "another cluster, as far as can be told: the Service's status shows it, but it has no node of this cluster among its targets"
	}
	return "somebody else, as far as can be told: an annotation of this Service chooses its name, but neither the Service's status shows it, nor was it made for this Service"
}

func (f Facts) proved() bool { return f.Proved != nil && f.Proved(f.Service) }

func (f Facts) copied() bool { return f.Copied != nil && f.Copied(f.Service) }

// madeHere reports whether the object is what only a controller makes for the Service, and leads to nodes of this cluster.
func (f Facts) madeHere() bool { return f.Targets != nil && f.Targets.Made && f.Targets.Ours > 0 }

// restored reports whether the Service, as far as can be told, was restored from another cluster, and its status with it.
func (f Facts) restored() bool {
	return f.copied() || (f.Targets != nil && f.Targets.Strange && !f.aboutToBeMade())
}

// aboutToBeMade reports whether the Service records the creation of the object, which has not the name of a Service that is gone or of
// another cluster.
func (f Facts) aboutToBeMade() bool {
	others := f.Made != nil && f.Made(f.Object.Name)
	return !others && f.Recorded != nil && f.Recorded(f.Service)
}

// decideByStatus decides about an object that neither a mark nor a name gives to any Service.
func (f Facts) decideByStatus(d Decision, ours bool) Decision {
	served := f.shows(f.Service)
	if other := f.other(func(s *v1.Service) bool { return f.shows(s) && (!served || before(s, f.Service)) }); other != nil {
		return d.refuse(serviceName(other), other)
	}
	if ours && slices.Contains(f.Object.Marks, NameMark(f.Service.Namespace, f.Service.Name)) {
		// It was retained by a Service of this namespace and name.
		return Decision{Verdict: Owned, Deletable: true, Object: d.Object}
	}
	if served && (ours || f.Unmarked || f.Adopt != registry.AdoptNone) {
		retained := slices.ContainsFunc(f.Object.Marks, IsServiceMark)
		return Decision{Verdict: Owned, Deletable: (ours && !retained) || f.Unmarked, Object: d.Object}
	}
	return f.adopt(d, ours)
}

// adopt decides about an object that nothing gives to any Service.
func (f Facts) adopt(d Decision, ours bool) Decision {
	who := "nobody that can be told: it carries no mark of this cluster, and neither its name nor its targets are this Service's"
	// Who takes a free node port may not have what stood behind it for somebody else.
	others := slices.ContainsFunc(f.Object.Marks, IsMark) || (f.Made != nil && f.Made(f.Object.Name))
	switch {
	case ours:
		who = "a Service of this cluster that is gone"
	case others:
		who = "another Service, as its name or its marks tell, which is gone or of another cluster"
	}
	switch {
	case f.Adopt == registry.AdoptAny && !f.Unmarked:
		// Of two that ask for the same object, the first one has it.
		if other := f.other(func(s *v1.Service) bool { return f.records(s) && before(s, f.Service) }); other != nil {
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

// other returns a living Service other than this one of which something is true.
func (f Facts) other(is func(*v1.Service) bool) *v1.Service {
	if i := slices.IndexFunc(f.Others, func(s *v1.Service) bool { return is(s) && (f.Shares == nil || !f.Shares(s)) }); i >= 0 {
		return f.Others[i]
	}
	return nil
}

func (f Facts) isNamedBy(s *v1.Service) bool {
	return f.Names != nil && f.Object.Name != "" && slices.Contains(f.Names(s), f.Object.Name)
}

func (f Facts) likely(s *v1.Service) bool {
	return f.Likely != nil && f.Object.Name != "" && slices.Contains(f.Likely(s), f.Object.Name)
}

func (f Facts) chosen(s *v1.Service) bool {
	return f.Chosen != nil && f.Object.Name != "" && slices.Contains(f.Chosen(s), f.Object.Name)
}

// shows reports whether the status of a Service shows the object, and its annotations lead there, if they lead anywhere:
// an address outlives its load balancer in a status, and the cloud may give it to the next one.
func (f Facts) shows(s *v1.Service) bool {
	if id := f.recordOf(s); id != "" && id != f.Object.ID {
		return false
	}
	return slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool {
		return slices.ContainsFunc(f.Object.Addresses, func(a string) bool {
			return a != "" && (a == in.IP || (in.Hostname != "" && strings.EqualFold(a, in.Hostname)))
		})
	})
}

// records reports whether the annotations of a living Service lead to the object.
func (f Facts) records(s *v1.Service) bool {
	return MayHave(s) && f.Object.ID != "" && f.recordOf(s) == f.Object.ID
}

func (f Facts) recordOf(s *v1.Service) string {
	if f.Record == nil {
		return ""
	}
	return f.Record(s)
}

// targetsOurs reports whether the object does what the Service's own would do, and nothing else: all of its targets are nodes
// of this cluster, all of its ports node ports of this Service, and none of them another one's.
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
	return f.other(func(s *v1.Service) bool {
		return slices.ContainsFunc(t.Ports, func(port int32) bool { return has(s, port) })
	}) == nil
}

// Holds reports whether a living Service has an object: by its mark, by the name that controllers give to it, by the ID that it
// records, or by the address that it shows. Each is enough, because what is held is no orphan. An address counts whatever the
// annotations say: a Service that an annotation is about to move is still served there.
func Holds(s *v1.Service, object Object, rules Rules) bool {
	f := Facts{Object: object, Rules: rules}
	if slices.Contains(object.Marks, ServiceMark(s.UID)) || f.isNamedBy(s) || f.likely(s) || f.chosen(s) ||
		(object.ID != "" && f.recordOf(s) == object.ID) {
		return true
	}
	f.Record = nil
	return f.shows(s)
}
