package ibm

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestProofOfAnother: authors of Services write annotations as well. A proof that was made up, or copied from the Service whose load
// balancer it is, proves nothing, wherever that Service is now.
func TestProofOfAnother(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(record string) string{
		"copied":  func(record string) string { return record },
		"made up": func(string) string { return madeShop + "/" + strings.Repeat("a", 2*proofBytes) },
		"empty":   func(string) string { return madeShop + "/" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				s := web(annotationName, "shop")
				w.mustEnsure(s)
				require.Regexp(w.t, "^"+madeShop+"/[0-9a-f]{32}$", s.Annotations[annotationRecord])
				w.bench.Withdraw(s) // as where the program does not run, and somebody takes away the finalizer
				before := snapshot(w.t, w.sim)
				w.restart()
				w.writes()
				claim := second(map[string]string{annotationName: "shop", annotationRecord: forge(s.Annotations[annotationRecord])})
				require.ErrorContains(w.t, w.ensure(claim), "belongs to")
				require.NoError(w.t, w.remove(claim))
				assert.Empty(w.t, w.writes())
				assert.Equal(w.t, before, snapshot(w.t, w.sim))
			})
		})
	}
}

// TestKeyChanged: with another API key a proof of before proves nothing. The status tells then, and the record is written again.
func TestKeyChanged(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationName, "shop")
		w.mustEnsure(s)
		record := s.Annotations[annotationRecord]
		w.sim.SetKey("another-key")
		dial := w.in.Dial
		w.in = conformance.Inputs(nil, w.sim.Environment(""))
		w.in.Dial = dial
		w.restart()
		w.writes()
		w.mustEnsure(s)
		assert.Empty(w.t, w.writes())
		assert.Contains(w.t, s.Annotations[annotationRecord], madeShop+"/")
		assert.NotEqual(w.t, record, s.Annotations[annotationRecord])
	})
}

// TestRestoredWithoutRecord: IBM's own controller leaves no record. What the status shows is then the Service's where it leads to a node of
// this cluster; elsewhere the Service was restored, and its status with it.
func TestRestoredWithoutRecord(t *testing.T) {
	t.Parallel()
	for name, restored := range map[string]bool{"a takeover": false, "in another cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				s := web(annotationName, "shop")
				w.mustEnsure(s)
				delete(s.Annotations, annotationRecord)
				if restored {
					w.bench.Unregister(w.nodes[0])
					w.nodes = []*v1.Node{}
				}
				w.restart()
				w.addNode("worker-2")
				w.writes()
				err := w.ensure(s)
				if !restored {
					require.NoError(w.t, err)
					assert.Equal(w.t, []string{put, put}, w.writes(), "the other node joins")
					return
				}
				require.ErrorContains(w.t, err, "no node of this cluster")
				require.NoError(w.t, w.remove(s))
				assert.Contains(w.t, w.drainEvents(), eventLeft)
				assert.Empty(w.t, w.writes())
			})
		})
	}
}

// TestRecordOfAGroupComesFirst (6): the record of a security group is there before the group. So one that was made right before the program
// ended goes although the ranges are removed before it starts again, and where the record cannot be written nothing is made.
func TestRecordOfAGroupComesFirst(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		refuses := true
		w.bench.Kube.PrependReactor("patch", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refuses, nil, errors.New("the API server does not answer")
		})
		s := ranged("web", "192.0.2.0/24")
		require.ErrorContains(w.t, w.ensure(s), "does not answer")
		assert.Empty(w.t, w.writes())
		refuses = false
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultReset, Operation: create})
		require.NoError(w.t, err)
		require.Error(w.t, w.ensure(s))
		require.Len(w.t, w.sim.MadeGroups(), 1, "it is made, and nothing else")
		assert.Equal(w.t, recordRanges, s.Annotations[annotationRecord])
		w.server.ClearFaults()
		w.restart()
		s.Spec.LoadBalancerSourceRanges = nil
		w.mustEnsure(s)
		assert.Empty(w.t, w.sim.MadeGroups())
		assert.NotContains(w.t, s.Annotations, annotationRecord)
	})
}
