package linode

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/internal/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// byLinodes makes a NodeBalancer look as Linode's own controller leaves it: its label says nothing about the Service.
func (w *world) byLinodes(id int) {
	w.sim.ChangeNodeBalancer(id, func(nb *linodesim.NodeBalancer) { nb.Label, nb.Tags = "ccm-0f0f0f0f0f0f", []string{"kubernetes"} })
}

// claimer is a Service older than all others that leads to a NodeBalancer.
func claimer(annotation string, nb int) *v1.Service {
	s := service("claimer", map[string]string{annotation: strconv.Itoa(nb)}, port("http", 80, 30999))
	s.UID, s.CreationTimestamp = "0c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1", metav1.NewTime(time.Unix(1, 0))
	return s
}

// TestClaims: neither age nor an annotation makes a NodeBalancer a Service's, whoever made it.
func TestClaims(t *testing.T) {
	t.Parallel()
	for _, annotation := range []string{annotationID, annotationRecord} {
		for _, legacy := range []bool{false, true} {
			w := lbWorld(t, 1)
			victim := service("victim", nil, port("http", 80, 30080))
			victim.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
			w.Apply(victim)
			victim, _ = w.ensure(victim)
			theirs := w.sim.NodeBalancers()[0].ID
			if legacy {
				w.byLinodes(theirs)
				w.restart()
			}
			before := snapshot(t, w.sim)
			s := claimer(annotation, theirs)
			w.Apply(s)
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
			_, isNotOurs := errorsAsNotOurs(err)
			require.True(t, isNotOurs, "%s, legacy %v: %v", annotation, legacy, err)
			told := strings.Join(w.Events(), "\n")
			assert.Contains(t, told, "Warning LoadBalancerNotOurs")
			assert.Contains(t, told, "Warning LoadBalancerClaimed")
			require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nil))
			require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
			assert.Equal(t, before, snapshot(t, w.sim), "%s, legacy %v", annotation, legacy)
			w.ensure(victim)
			assert.Equal(t, before, snapshot(t, w.sim), "and its owner goes on")
		}
	}
}

func errorsAsNotOurs(err error) (*ownership.NotOursError, bool) {
	return errors.AsType[*ownership.NotOursError](err)
}

// TestAdoption: a NodeBalancer without a mark becomes a Service's by evidence, or by the operator's leave; and what no
// controller made is never deleted.
func TestAdoption(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		adopt   registry.Adoption
		targets int // the node port that it sends traffic to; 0 for none
		made    bool
		refused bool
		deleted bool
	}{
		"the Service's own node port":              {registry.AdoptEvidence, 30080, false, false, false},
		"made by Linode's own controller":          {registry.AdoptEvidence, 30080, true, false, true},
		"another node port":                        {registry.AdoptEvidence, 30081, false, true, false},
		"no target":                                {registry.AdoptEvidence, 0, false, true, false},
		"no target, made by Linode's own":          {registry.AdoptEvidence, 0, true, true, false},
		"no target, and the operator allows it":    {registry.AdoptAny, 0, false, false, false},
		"its node port, and the operator does not": {registry.AdoptNone, 30080, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			w.loadBalancers.adopt = c.adopt
			id := w.users("users-own")
			if c.made {
				w.byLinodes(id)
			}
			if c.targets != 0 {
				w.serves(id, c.targets)
			}
			s := service("web", map[string]string{annotationID: strconv.Itoa(id)}, port("http", 80, 30080))
			w.Apply(s)
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
			if c.refused {
				_, isNotOurs := errorsAsNotOurs(err)
				require.True(t, isNotOurs, "%v", err)
			} else {
				require.NoError(t, err)
			}
			s = w.Current(s)
			require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
			assert.Equal(t, c.deleted, len(w.sim.NodeBalancers()) == 0)
		})
	}
}

// TestLeftBehind: the API server takes status and node ports away with the type of a Service. What Linode's own controller
// made for it goes all the same, unless it does something for another Service.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		other *v1.Service
		left  int
	}{
		"nobody else's":               {nil, 0},
		"another one has its port":    {service("other", nil, port("http", 80, 30080)), 1},
		"another one recorded it":     {service("other", map[string]string{annotationRecord: "ID"}, port("http", 80, 30999)), 1},
		"another one has other ports": {service("other", nil, port("http", 80, 30999)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			s := service("web", nil, port("http", 80, 30080))
			w.Apply(s)
			s, _ = w.ensure(s)
			id := w.sim.NodeBalancers()[0].ID
			w.byLinodes(id)
			w.restart()
			s = s.DeepCopy()
			s.Spec.Type, s.Status.LoadBalancer, s.Spec.Ports[0].NodePort = v1.ServiceTypeClusterIP, v1.LoadBalancerStatus{}, 0
			w.Apply(s)
			if c.other != nil {
				c.other.UID = "9c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1"
				if c.other.Annotations[annotationRecord] != "" {
					c.other.Annotations[annotationRecord] = strconv.Itoa(id)
				}
				w.Apply(c.other)
			}
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
			assert.Len(t, w.sim.NodeBalancers(), c.left)
		})
	}
}
