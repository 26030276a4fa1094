package cloudstack

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
)

func TestStickinessOf(t *testing.T) {
	t.Parallel()
	web, plain := port("http", 80, 30080), port("tcp", 81, 30081)
	web.AppProtocol = new("http")
	dns := port("dns", 53, 30053)
	dns.Protocol = v1.ProtocolUDP
	for name, c := range map[string]struct {
		method, params string
		ports          []int
		want           map[string]string
		err            string
	}{
		"none":          {params: "mode=insert"},
		"cookies":       {method: "LbCookie", ports: []int{80}, want: map[string]string{}},
		"in lower case": {method: "lbcookie", params: " ", ports: []int{80}, want: map[string]string{}},
		"by the address": {
			method: "SourceBased", params: "tablesize=200k, expire=30m", ports: []int{80, 81},
			want: map[string]string{"tablesize": "200k", "expire": "30m"},
		},
		"flags": {
			method: "LbCookie", params: "nocache,mode=insert,indirect=true", ports: []int{80},
			want: map[string]string{"nocache": "true", "mode": "insert", "indirect": "true"},
		},
		"no value":          {method: "LbCookie", params: "cookie-name=", err: "without a value"},
		"no value at all":   {method: "LbCookie", params: "cookie-name", err: "without a value"},
		"a comma too much":  {method: "LbCookie", params: "nocache,", err: `holds "", which is no parameter of LbCookie`},
		"a blank":           {method: "LbCookie", params: "cookie-name=a b", err: "are not allowed"},
		"a line of HAProxy": {method: "LbCookie", params: `cookie-name=x\tindirect`, err: "are not allowed"},
		"a comment":         {method: "LbCookie", params: "domain=a#b", err: "are not allowed"},
		"twice":             {method: "LbCookie", params: "domain=a,domain=b", err: `holds "domain" twice`},
		"of another":        {method: "LbCookie", params: "tablesize=1k", err: "no parameter of LbCookie; those are cookie-name, domain, indirect, mode, nocache, postonly"},
		"a bad mode":        {method: "LbCookie", params: "mode=add", err: "has to be insert, rewrite or prefix"},
		"a flag with text":  {method: "LbCookie", params: "nocache=no", err: "is a flag"},
		"a bad size":        {method: "SourceBased", params: "tablesize=much", err: "has to be a number"},
		"a bad time":        {method: "SourceBased", params: "expire=30 m", err: "are not allowed"},
		"no time":           {method: "SourceBased", params: "expire=m", err: "has to be a time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := service("web", nil, web, plain, dns)
			wanted, err := stickinessOf(s, settings{Stickiness: c.method, StickinessParams: c.params})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Len(t, wanted, len(c.ports))
			for _, p := range c.ports {
				assert.Equal(t, c.want, wanted[p].Params)
			}
		})
	}
	_, err := stickinessOf(service("web", nil, plain), settings{Stickiness: "LbCookie"})
	assert.ErrorContains(t, err, "needs a port with appProtocol: http")
}

// sticky is a Service with one port for the web and another one, that asks for cookies.
func sticky(params string) *v1.Service {
	web := port("http", 80, 30080)
	web.AppProtocol = new("http")
	annotations := map[string]string{annotationStickiness: "LbCookie"}
	if params != "" {
		annotations[annotationStickinessParams] = params
	}
	return service("web", annotations, web, port("https", 443, 30443))
}

// onlyPolicy is the only one there is.
func (w *world) onlyPolicy() cloudstacksim.Policy {
	w.T.Helper()
	require.Len(w.T, w.sim.Policies(), 1)
	return w.sim.Policies()[0]
}

// TestStickiness: one policy at the port for the web; it keeps its ID, follows the parameters, and goes with the annotation, also where the
// program began again meanwhile.
func TestStickiness(t *testing.T) {
	for name, again := range map[string]bool{"one program": false, "begun again": true} {
		t.Run(name, func(t *testing.T) { inWorld(t, nil, func(w *world) { followStickiness(w, again) }) })
	}
}

func followStickiness(w *world, again bool) {
	t, s := w.T, sticky("cookie-name=lb,nocache")
	step := func(change func(*v1.Service)) {
		if w.alter(s, change); again {
			w.restart()
		}
		w.ensure(s)
	}
	w.Apply(s)
	w.ensure(s)
	first := w.onlyPolicy()
	assert.Equal(t, "Managed by the CloudStack Kubernetes Provider", first.Description)
	assert.Equal(t, "LbCookie", first.Method)
	assert.Equal(t, map[string]string{"cookie-name": "lb", "nocache": "true"}, first.Params)
	w.requireNoWrites(w.Current(s))

	step(func(s *v1.Service) { s.Annotations[annotationProxyProtocol] = "true" })
	assert.Equal(t, first.ID, w.onlyPolicy().ID)
	step(func(s *v1.Service) { s.Annotations[annotationStickinessParams] = "cookie-name=other" })
	assert.NotEqual(t, first.ID, w.onlyPolicy().ID)
	assert.Equal(t, map[string]string{"cookie-name": "other"}, w.onlyPolicy().Params)

	kept := w.onlyPolicy()
	w.alter(s, func(s *v1.Service) { s.Annotations[annotationStickinessParams] = "mode=add" })
	_, err := w.try(s)
	require.ErrorContains(t, err, "has to be insert, rewrite or prefix")
	assert.Equal(t, kept, w.onlyPolicy(), "a bad value changes nothing")

	step(func(s *v1.Service) {
		s.Annotations[annotationStickiness] = "SourceBased"
		delete(s.Annotations, annotationStickinessParams)
	})
	assert.Len(t, w.sim.Policies(), 2, "one at each TCP port")
	step(func(s *v1.Service) { delete(s.Annotations, annotationStickiness) })
	assert.Empty(t, w.sim.Policies())
	assert.NotContains(t, w.Current(s).Annotations, annotationSticky)
	w.requireNoWrites(w.Current(s))
	calls := w.server.Calls().ByOperation["listLBStickinessPolicies"]
	w.restart()
	w.ensure(s)
	assert.Equal(t, calls, w.server.Calls().ByOperation["listLBStickinessPolicies"], "who asks for none costs no call")
}

// TestStickinessMadeByHand: a policy that somebody made stays as it is, and nothing is put beside it.
func TestStickinessMadeByHand(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t, s := w.T, sticky("")
		method := s.Annotations[annotationStickiness]
		s.Annotations = map[string]string{}
		w.Apply(s)
		w.ensure(s)
		for _, r := range w.sim.Rules() {
			byHand(w, "createLBStickinessPolicy", params{"lbruleid": r.ID, "name": "mine", "methodname": "SourceBased"})
		}
		before := w.sim.Policies()
		w.alter(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationStickiness: method} })
		w.ensure(s)
		w.eventAbout(eventIgnored, "mine")
		assert.Equal(t, before, w.sim.Policies())
		w.alter(s, func(s *v1.Service) { delete(s.Annotations, annotationStickiness) })
		w.ensure(s)
		assert.Equal(t, before, w.sim.Policies())
	})
}

// TestStickinessIsTakenOver: the policy of CloudStack's own controller costs no write, and goes with the annotation.
func TestStickinessIsTakenOver(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t, s := w.T, sticky("cookie-name=lb,nocache=true")
		annotations := s.Annotations
		s.Annotations = map[string]string{}
		w.Apply(s)
		w.ensure(s)
		for _, r := range w.sim.Rules() {
			if r.PublicPort == 80 {
				byHand(w, "createLBStickinessPolicy", params{
					"lbruleid": r.ID, "name": "theirs", "methodname": "LbCookie", "description": managedPolicy, "param[0].name": "nocache",
					"param[0].value": "true", "param[1].name": "cookie-name", "param[1].value": "lb",
				})
			}
		}
		record := w.Current(s).Annotations
		w.alter(s, func(s *v1.Service) {
			for key, value := range annotations {
				if s.Annotations == nil {
					s.Annotations = map[string]string{}
				}
				s.Annotations[key] = value
			}
		})
		w.restart()
		w.requireNoWrites(w.Current(s))
		assert.Equal(t, "theirs", w.onlyPolicy().Name)
		assert.NotContains(t, w.Current(s).Annotations, annotationSticky, "nothing is recorded")
		w.alter(s, func(s *v1.Service) { s.Annotations = record })
		w.ensure(s)
		assert.Empty(t, w.sim.Policies())
	})
}

// TestStickinessThatCannotBe: what the network does not have is refused before anything is made, and a role without the commands is told.
func TestStickinessThatCannotBe(t *testing.T) {
	t.Run("the network", func(t *testing.T) {
		inWorld(t, func(sim *cloudstacksim.Sim) {
			sim.EditNetwork(sim.SeedNetwork(), func(n *cloudstacksim.Network) { n.Stickiness = []string{"SourceBased"} })
		}, func(w *world) {
			s := sticky("")
			w.Apply(s)
			_, err := w.try(s)
			require.ErrorContains(w.T, err, "is not supported on network")
			w.eventAbout(eventConfigError, "SourceBased")
			assert.Empty(w.T, w.takenAddresses())
		})
	})
	t.Run("the role", func(t *testing.T) {
		inWorld(t, nil, func(w *world) {
			w.sim.Restrict(cloudstacksim.APIKey, projectRole...)
			s := sticky("")
			w.Apply(s)
			for range 2 {
				w.ensure(s)
				w.eventAbout(eventIgnored, "has no effect at port 80")
				time.Sleep(2 * observedMaxAge)
			}
			assert.Empty(w.T, w.sim.Policies())
			assert.Len(w.T, w.sim.Rules(), 2)
		})
	})
}
