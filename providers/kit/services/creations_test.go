package services

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// old is a Service that was there before this process.
func old() *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{UID: "1", CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer},
	}
}

func protected(s *v1.Service) { s.Finalizers = []string{servicehelper.LoadBalancerCleanupFinalizer} }

func retyped(s *v1.Service) {
	protected(s)
	s.Spec.Type = v1.ServiceTypeClusterIP
}

// TestDoubt: what is not known of a creation is waited for, for so long as it may take to show and no longer.
func TestDoubt(t *testing.T) {
	t.Parallel()
	const shows = 30 * time.Second
	lost := &cloudapi.Error{Class: cloudapi.ErrTransient}
	refused := &cloudapi.Error{Class: cloudapi.ErrQuota, Status: 422}
	wrapped := cloudapi.NotAbsence(&cloudapi.Error{Class: cloudapi.ErrNotFound, Status: 404})
	shown := func(s *v1.Service) {
		protected(s)
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	}
	young := func(s *v1.Service) {
		protected(s)
		s.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
	}
	for name, c := range map[string]struct {
		seen    *Creations
		service func(*v1.Service)
		asked   error
		doubts  bool
	}{
		"nothing was asked":                 {&Creations{Shows: shows}, nil, nil, false},
		"lost":                              {&Creations{Shows: shows}, nil, lost, true},
		"lost, names are unique":            {&Creations{Shows: shows, Repeat: true}, nil, lost, true},
		"refused":                           {&Creations{Shows: shows}, nil, refused, false},
		"refused for something else's sake": {&Creations{Shows: shows}, nil, wrapped, false},
		"lost, not waited for":              {&Creations{}, nil, lost, false},
		"another process":                   {&Creations{Shows: shows}, protected, nil, true},
		"another process, unique names":     {&Creations{Shows: shows, Repeat: true}, protected, nil, true},
		"another process, it was served":    {&Creations{Shows: shows}, shown, nil, false},
		"it is no load balancer any more":   {&Creations{Shows: shows}, retyped, nil, false},
		"the Service is younger":            {&Creations{Shows: shows}, young, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				service := old()
				if c.service != nil {
					c.service(service)
				}
				seen := c.seen
				seen.recordBegin()
				r := &Request{Service: service}
				r.Asked(c.asked)
				seen.recordUnknown(r)
				assert.Equal(t, c.doubts, seen.searchAgain(service, "web") != nil)
				if c.doubts {
					time.Sleep(shows - time.Second)
					var later *cloudproviderapi.RetryError
					require.ErrorAs(t, seen.searchAgain(service, "web"), &later)
					assert.Equal(t, time.Second, later.RetryAfter())
				}
				time.Sleep(time.Second)
				require.NoError(t, seen.searchAgain(service, "web"))
			})
		})
	}
}

// TestDoubtEndsWithService: a Service that this process has served, and that has no status yet, or lost it, is in no doubt for the sake
// of processes before; another one is, and a lost answer counts all the same.
func TestDoubtEndsWithService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service, other := old(), old()
		other.UID = "2"
		protected(service)
		protected(other)
		seen := &Creations{Shows: 30 * time.Second}
		seen.recordBegin()
		seen.recordServed(service)
		require.NoError(t, seen.searchAgain(service, "web"))
		require.Error(t, seen.searchAgain(other, "other"))
		r := &Request{Service: service}
		r.Asked(&cloudapi.Error{Class: cloudapi.ErrTransient})
		seen.recordUnknown(r)
		require.ErrorContains(t, seen.searchAgain(service, "web"), "was lost")
		time.Sleep(seen.Shows + time.Second)
		seen.recordServed(other)
		assert.Empty(t, seen.served, "nobody is in doubt any more")
		require.NoError(t, seen.searchAgain(other, "other"))
	})
}

// TestCreationInDoubt: what a creation without an answer may have made is neither made again nor taken for absent before it would show.
func TestCreationInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{want: []string{}, fail: "load balancer"}
		l, _, service := serve(s)
		l.Creations = &Creations{Shows: 30 * time.Second}
		_, err := l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
		require.Error(t, err)
		s.fail, s.calls = "", nil
		require.ErrorContains(t, l.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", service), "was lost")
		_, _, err = l.GetLoadBalancer(t.Context(), "kubernetes", service)
		require.ErrorContains(t, err, "was lost")
		s.calls = nil
		began := time.Now()
		_, err = l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
		require.NoError(t, err, "it is waited for")
		assert.GreaterOrEqual(t, time.Since(began), 29*time.Second)
		assert.Equal(t, slices.Repeat([]string{"observe ensure"}, 6), s.calls[:min(6, len(s.calls))], "it is not made again")
		assert.NotNil(t, s.stored)
	})
}
