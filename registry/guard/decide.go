package guard

import (
	"fmt"
	"math"
	"time"
)

// hold is the reason for keeping a Node whose instance the cloud calls gone.
type hold string

const (
	holdNone hold = ""
	// holdYoung, holdUnconfirmed and holdPace end by themselves within seconds.
	holdYoung       hold = "young"
	holdUnconfirmed hold = "unconfirmed"
	holdPace        hold = "pace"
	// The others last until something changes, and are reported.
	holdShare         hold = "share"
	holdAll           hold = "all"
	holdContradiction hold = "contradiction"
	holdAccount       hold = "account"
	holdDryRun        hold = "dry-run"
)

// isLasting reports whether the hold lasts, so that it is reported.
func (h hold) isLasting() bool {
	return h != holdNone && h != holdYoung && h != holdUnconfirmed && h != holdPace
}

const (
	// releasePause is the time between two Nodes that are deleted after a hold by share, to limit the damage of a mistake.
	releasePause = 10 * time.Second
	// contradictionGrace is how long a Node may still be ready after its machine is gone.
	contradictionGrace = 2 * time.Minute
)

// suspect is a Node whose instance was called gone and was not observed since.
type suspect struct {
	// first and last are when it was called gone, answers how often.
	first, last time.Time
	answers     int
	// single is set if the last answer came from a single read of the instance.
	single bool
	// announced is set for a Node whose removal was announced.
	announced bool
	// knownSince is when this process first observed the Node, which is at least as old.
	knownSince time.Time
}

// situation is the whole input of the decision about one suspect.
type situation struct {
	now     time.Time
	suspect suspect
	// vanished counts the unplanned suspects and the unplanned Nodes deleted within the window; total is the cluster's size, including the
	// latter.
	vanished, total int
	// witness is a time after which an instance of the cluster was read; witnessedSince is since when there was always such a time.
	witness, witnessedSince time.Time
	// whyUnseen is the reason why no witness was found.
	whyUnseen string
	// lastReturned is when the instance of a suspect was last observed again.
	lastReturned time.Time
	// putOff is set if the next search for a witness is due within witnessPause.
	putOff bool
	// hasOtherReady is set if there is another ready Node whose removal nobody announced: its instance can be read.
	hasOtherReady bool
	// contradiction is a Node that is ready although the cloud calls its instance gone too; none if its node is "".
	contradiction contradiction
	// lastReleased is when a Node was last deleted after a hold by share.
	lastReleased time.Time
	// accountErr is the error of an authenticated call; it matters if the operator has lifted the limits.
	accountErr error
}

// limit is the number of Nodes that may vanish within the window.
func (p Policy) limit(total int) int {
	return max(p.Floor, int(math.Ceil(p.MaxShare*float64(total))))
}

// areLimitsLifted reports whether the operator has switched the limits off.
func (p Policy) areLimitsLifted() bool { return p.MaxShare >= 1 }

// isConfirmed reports whether the cloud has called an instance gone often and long enough.
func (p Policy) isConfirmed(s suspect) bool {
	return s.answers >= p.Confirmations && s.last.Sub(s.first) >= p.ConfirmationTime
}

// calmSince returns since when nothing contradicted the evidence against a suspect.
func (s situation) calmSince() time.Time {
	since := s.suspect.first
	for _, t := range []time.Time{s.witnessedSince, s.lastReturned} {
		if t.After(since) {
			since = t
		}
	}
	return since
}

// holdIsServed reports whether a hold by share has lasted long enough. While no other Node is ready, it does not end: if kubelets of the
// whole cluster do not report, that proves nothing about the machines.
func (p Policy) holdIsServed(s situation) bool {
	return p.HoldTime > 0 && s.hasOtherReady && s.now.Sub(s.calmSince()) >= p.HoldTime
}

// decide returns whether the Node of a suspect may be deleted, or the reason and the advice if not. It makes no call.
func decide(p Policy, s situation) (hold, string) {
	if why, message := p.judgeProof(s); why != holdNone {
		return why, message
	}
	judge := p.judgeUnannounced
	if s.suspect.announced {
		judge = p.judgeAnnounced
	}
	if why, message := judge(s); why != holdNone {
		return why, message
	}
	if !s.suspect.single {
		return holdUnconfirmed, "a read of this very instance has to confirm it"
	}
	if p.DryRun {
		return holdDryRun, "the Node would be deleted now; --node-deletion-dry-run keeps it"
	}
	return holdNone, ""
}

// judgeProof returns a hold if the instance is not certainly gone.
func (p Policy) judgeProof(s situation) (hold, string) {
	switch {
	case s.now.Sub(s.suspect.knownSince) < p.GracePeriod:
		return holdYoung, fmt.Sprintf("the Node is not known for %s yet (--node-deletion-grace-period)", p.GracePeriod)
	case !p.isConfirmed(s.suspect):
		return holdUnconfirmed, fmt.Sprintf("the cloud has said so %d times in %s; %d times in %s are needed",
			s.suspect.answers, s.suspect.last.Sub(s.suspect.first).Round(time.Second), p.Confirmations, p.ConfirmationTime)
	}
	return holdNone, ""
}

// hasWitness reports whether an instance of the cluster was read after the suspicion began, and recently: the credential may have been
// replaced since.
func (p Policy) hasWitness(s situation) bool {
	return !s.witness.IsZero() && !s.witness.Before(s.suspect.first) && s.now.Sub(s.witness) <= witnessMaxAge+p.ConfirmationTime
}

// judgeAnnounced returns a hold for an announced removal if the credential seems to be another account's: the announcement may be old or
// cancelled. If no other Node is left whose instance could be read, there is no hold.
func (p Policy) judgeAnnounced(s situation) (hold, string) {
	switch {
	case p.areLimitsLifted():
		return holdNone, ""
	case !p.hasWitness(s) && s.hasOtherReady:
		return p.holdWithoutWitness(s)
	case s.contradiction.wasSeen:
		return p.holdByContradiction(s)
	}
	return holdNone, ""
}

// judgeUnannounced returns a hold for an unannounced loss that looks like a fault of the credential or the cloud.
func (p Policy) judgeUnannounced(s situation) (hold, string) {
	limit := p.limit(s.total)
	switch {
	case p.areLimitsLifted():
		if !p.hasWitness(s) && s.accountErr != nil {
			return holdAccount, fmt.Sprintf("no instance of the cluster was seen, and the account cannot be read: %v", s.accountErr)
		}
		return holdNone, ""
	case !p.hasWitness(s):
		return p.holdWithoutWitness(s)
	case s.contradiction.node != "":
		return p.holdByContradiction(s)
	case s.vanished <= limit:
		return holdNone, ""
	case !p.holdIsServed(s):
		return holdShare, fmt.Sprintf("the instances of %d of %d Nodes vanished within %s without being announced, more than the %d that are allowed; "+
			"check the cloud account and the credential. %s To delete them now: kubectl delete node, or raise --node-deletion-max-share",
			s.vanished, s.total, p.Window, limit, p.describeEnd())
	case s.now.Sub(s.lastReleased) < releasePause:
		return holdPace, fmt.Sprintf("after a hold one Node goes every %s", releasePause)
	}
	return holdNone, ""
}

// holdWithoutWitness returns the hold and the advice if no instance of the cluster was read.
func (Policy) holdWithoutWitness(s situation) (hold, string) {
	if s.putOff {
		return holdUnconfirmed, fmt.Sprintf("other instances are looked for at most every %s", witnessPause)
	}
	what := fmt.Sprintf("no instance of this cluster was seen since the cloud called this one gone (%s)", s.whyUnseen)
	if s.vanished >= s.total && s.total > 1 {
		what = fmt.Sprintf("the instances of all %d Nodes are gone at once", s.total)
	}
	return holdAll, what + ", as it is when the credential belongs to another account or project; check it. Nodes are deleted again when one instance is seen. " +
		"Exclude Nodes that are not instances of this cloud by --node-selector. If they are really gone: kubectl delete node, or restart with --node-deletion-max-share=1"
}

// holdByContradiction returns a hold if a ready Node contradicts the cloud, with an event if that lasts.
func (Policy) holdByContradiction(s situation) (hold, string) {
	name := s.contradiction.node
	if s.now.Sub(s.contradiction.since) < contradictionGrace {
		return holdUnconfirmed, fmt.Sprintf("node %s is ready although the cloud calls its instance gone too; that has to end, or to last %s", name, contradictionGrace)
	}
	return holdContradiction, fmt.Sprintf("node %s is, or was for long, ready although the cloud calls its instance gone, as it is when the credential sees only a part of the "+
		"cluster; check account, project, region and rights. If node %s is not an instance of this cloud, exclude it by --node-selector; "+
		"if the instances are really gone: kubectl delete node, or restart with --node-deletion-max-share=1", name, name)
}

// describeEnd says how a hold by share ends: after a time, or as soon as it is no longer more than may vanish.
func (p Policy) describeEnd() string {
	end := "They are kept until a person acts (--node-deletion-hold-time=0)."
	if p.HoldTime > 0 {
		end = fmt.Sprintf("If they stay away for %s while others are seen and ready, they go one by one (--node-deletion-hold-time).", p.HoldTime)
	}
	return end + " Once no more are missing than are allowed, as when some of them are deleted by hand or new Nodes join, the rest go at once."
}
