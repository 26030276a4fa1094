package guard

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noon is the time at which decisions are made, and before that other times.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// usual is one of a hundred, confirmed by a single read while others are seen.
func usual() (Policy, situation) {
	return DefaultPolicy(), situation{
		now: noon, vanished: 1, total: 100, hasOtherReady: true, witness: ago(5 * time.Second), witnessedSince: ago(time.Hour),
		suspect: suspect{first: ago(12 * time.Second), last: noon, answers: 3, single: true, knownSince: ago(time.Hour)},
	}
}

// decisions lists changes to the usual situation with the expected decision.
var decisions = map[string]struct {
	change func(*Policy, *situation)
	want   hold
}{
	"one of many":                 {func(*Policy, *situation) {}, holdNone},
	"young":                       {func(_ *Policy, s *situation) { s.suspect.knownSince = ago(10 * time.Second) }, holdYoung},
	"young and announced":         {func(_ *Policy, s *situation) { s.suspect.knownSince, s.suspect.announced = ago(10*time.Second), true }, holdYoung},
	"two answers":                 {func(_ *Policy, s *situation) { s.suspect.answers = 2 }, holdUnconfirmed},
	"many answers at once":        {func(_ *Policy, s *situation) { s.suspect.first, s.suspect.answers = ago(9*time.Second), 100 }, holdUnconfirmed},
	"announced, two answers":      {func(_ *Policy, s *situation) { s.suspect.announced, s.suspect.answers = true, 2 }, holdUnconfirmed},
	"the last one from a listing": {func(_ *Policy, s *situation) { s.suspect.single = false }, holdUnconfirmed},
	"announced, by a listing":     {func(_ *Policy, s *situation) { s.suspect.announced, s.suspect.single = true, false }, holdUnconfirmed},
	"no witness ever":             {func(_ *Policy, s *situation) { s.witness = time.Time{} }, holdAll},
	"a witness of long ago": {func(_ *Policy, s *situation) {
		s.suspect.first, s.witness = ago(time.Hour), ago(2*time.Minute)
	}, holdAll},
	"a witness before suspicion, another search soon": {func(_ *Policy, s *situation) {
		s.witness, s.putOff = ago(13*time.Second), true
	}, holdUnconfirmed},
	"a witness before suspicion": {func(_ *Policy, s *situation) { s.witness = ago(13 * time.Second) }, holdAll},
	"no witness, announced, no other is ready": {func(_ *Policy, s *situation) {
		s.witness, s.suspect.announced, s.hasOtherReady = time.Time{}, true, false
	}, holdNone},
	"no witness, announced, others are ready": {func(_ *Policy, s *situation) {
		s.witness, s.suspect.announced, s.hasOtherReady = time.Time{}, true, true
	}, holdAll},
	"a witness, announced, others are ready": {func(_ *Policy, s *situation) { s.suspect.announced, s.hasOtherReady = true, true }, holdNone},
	"no witness, announced, others are ready, lifted": {func(p *Policy, s *situation) {
		p.MaxShare, s.witness, s.suspect.announced, s.hasOtherReady = 1, time.Time{}, true, true
	}, holdNone},
	"no witness, lifted":         {func(p *Policy, s *situation) { p.MaxShare, s.witness = 1, time.Time{} }, holdNone},
	"lifted, account refused":    {func(p *Policy, s *situation) { p.MaxShare, s.witness, s.accountErr = 1, time.Time{}, errors.New("401") }, holdAccount},
	"a fifth":                    {func(_ *Policy, s *situation) { s.vanished = 20 }, holdNone},
	"more than a fifth":          {func(_ *Policy, s *situation) { s.vanished = 21 }, holdShare},
	"more, announced":            {func(_ *Policy, s *situation) { s.vanished, s.suspect.announced = 21, true }, holdNone},
	"more, lifted":               {func(p *Policy, s *situation) { p.MaxShare, s.vanished = 1, 100 }, holdNone},
	"small cluster":              {func(_ *Policy, s *situation) { s.vanished, s.total = 3, 5 }, holdNone},
	"small cluster, more":        {func(_ *Policy, s *situation) { s.vanished, s.total = 4, 5 }, holdShare},
	"more, for long":             {func(_ *Policy, s *situation) { s.vanished, s.suspect.first = 21, ago(15*time.Minute) }, holdNone},
	"more, for long, never ends": {func(p *Policy, s *situation) { p.HoldTime, s.vanished, s.suspect.first = 0, 21, ago(time.Hour) }, holdShare},
	"more, for long, too fast": {func(_ *Policy, s *situation) {
		s.vanished, s.suspect.first, s.lastReleased = 21, ago(15*time.Minute), ago(time.Second)
	}, holdPace},
	"more, for long, one came back": {func(_ *Policy, s *situation) {
		s.vanished, s.suspect.first, s.lastReturned = 21, ago(time.Hour), ago(14*time.Minute)
	}, holdShare},
	"more, for long, no other is ready": {func(_ *Policy, s *situation) {
		s.vanished, s.suspect.first, s.hasOtherReady = 21, ago(time.Hour), false
	}, holdShare},
	"more, for long, nothing seen between": {func(_ *Policy, s *situation) {
		s.vanished, s.suspect.first, s.witnessedSince = 21, ago(time.Hour), ago(14*time.Minute)
	}, holdShare},
	"a ready node is gone too, for a moment": {func(_ *Policy, s *situation) { s.contradiction = contradiction{node: "n1", since: ago(time.Minute)} }, holdUnconfirmed},
	"a ready node is gone too": {
		func(_ *Policy, s *situation) { s.contradiction = contradiction{node: "n1", since: ago(time.Hour)} }, holdContradiction,
	},
	"a ready node is gone too, announced": {func(_ *Policy, s *situation) {
		s.contradiction, s.suspect.announced = contradiction{node: "n1", since: ago(time.Hour)}, true
	}, holdNone},
	"a ready node that was seen before is gone too, announced": {func(_ *Policy, s *situation) {
		s.contradiction, s.suspect.announced = contradiction{node: "n1", since: ago(time.Hour), wasSeen: true}, true
	}, holdContradiction},
	"a ready node that was seen before is gone too, for a moment, announced": {func(_ *Policy, s *situation) {
		s.contradiction, s.suspect.announced = contradiction{node: "n1", since: ago(time.Minute), wasSeen: true}, true
	}, holdUnconfirmed},
	"dry run":            {func(p *Policy, _ *situation) { p.DryRun = true }, holdDryRun},
	"dry run, announced": {func(p *Policy, s *situation) { p.DryRun, s.suspect.announced = true, true }, holdDryRun},
}

func TestDecide(t *testing.T) {
	t.Parallel()
	for name, c := range decisions {
		p, s := usual()
		c.change(&p, &s)
		got, message := decide(p, s)
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, got != holdNone, message != "", name)
		if got == holdAll || got == holdShare || got == holdContradiction {
			assert.Contains(t, message, "kubectl delete node", name)
			assert.Contains(t, message, "--node-deletion-max-share", name)
		}
		if got == holdShare {
			assert.Equal(t, p.HoldTime == 0, strings.Contains(message, "They are kept until a person acts"), message)
		}
	}
}

func TestPlanned(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	p.PlannedKeys = []string{"example.com/leaving"}
	for name, c := range map[string]struct {
		change func(*v1.Node)
		want   bool
	}{
		"nothing":                {func(*v1.Node) {}, false},
		"cordoned":               {func(n *v1.Node) { n.Spec.Unschedulable = true }, false},
		"not ready":              {taint(v1.TaintNodeNotReady), false},
		"a mere candidate":       {taint("DeletionCandidateOfClusterAutoscaler"), false},
		"Cluster Autoscaler":     {taint("ToBeDeletedByClusterAutoscaler"), true},
		"Karpenter":              {taint("karpenter.sh/disrupted"), true},
		"Karpenter before v1":    {taint("karpenter.sh/disruption"), true},
		"out of service":         {taint("node.kubernetes.io/out-of-service"), true},
		"the operator's taint":   {taint("example.com/leaving"), true},
		"the operator's key":     {func(n *v1.Node) { n.Annotations = map[string]string{"example.com/leaving": "soon"} }, true},
		"must not be disrupted":  {func(n *v1.Node) { n.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"} }, false},
		"being deleted":          {func(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, true},
		"a label is no announce": {func(n *v1.Node) { n.Labels = map[string]string{"example.com/leaving": ""} }, false},
	} {
		n := node("alpha://1", false)
		c.change(n)
		assert.Equal(t, c.want, p.isAnnounced(n), name)
	}
}
