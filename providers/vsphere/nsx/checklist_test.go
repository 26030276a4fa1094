package nsx

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// Places of settings in the one call that makes a load balancer.
const (
	inMonitor = "children.0.LBMonitorProfile."
	inPool    = "children.1.LBPool."
	inServer  = "children.3.LBVirtualServer."
)

func checked(field string) conformance.Checked {
	return conformance.Checked{
		Legal:   []conformance.Legal{{Value: "1", Field: field, Want: 1.0}, {Value: "20", Field: field, Want: 20.0}},
		Illegal: []string{"0", "-1", "2147483648", "5s", "x"},
	}
}

func TestAnnotationChecklist(t *testing.T) {
	t.Parallel()
	conformance.Checklist{
		Rows: Annotations.Rows(), Creation: "PATCH /policy/api/v1/infra", Refused: eventConfigError, Ignored: services.EventIgnored,
		Items: map[string]conformance.Checked{
			annotationClass: {
				Legal: []conformance.Legal{
					{Value: "dmz", Field: inServer + "tags.2.tag", Want: "dmz"},
					{Value: " dmz ", Field: inServer + "tags.2.tag", Want: "dmz"},
					{Value: "default", Field: inServer + "tags.2.tag", Want: "default"},
					{Value: "", Field: inServer + "tags.2.tag", Want: "default"},
				},
				Illegal: []string{"nowhere", "Dmz", `a"b`}, Elsewhere: "TestClassChangeKeepsTheAddress",
			},
			annotationAlgorithm: {
				Legal: []conformance.Legal{
					{Value: "ROUND_ROBIN", Field: inPool + "algorithm", Want: "ROUND_ROBIN"},
					{Value: "LEAST_CONNECTION", Field: inPool + "algorithm", Want: "LEAST_CONNECTION"},
					{Value: "IP_HASH", Field: inPool + "algorithm", Want: "IP_HASH"},
				},
				Illegal: []string{"WEIGHTED_ROUND_ROBIN", "ip_hash", "x"},
			},
			annotationInterval: checked(inMonitor + "interval"), annotationTimeout: checked(inMonitor + "timeout"),
			annotationRise: checked(inMonitor + "rise_count"), annotationFall: checked(inMonitor + "fall_count"),
		},
		Service: func(annotations map[string]string) *v1.Service {
			return service("web", annotations, port("http", 80, 30080))
		},
		Check: func(s *v1.Service) (warnings, err error) {
			return testConfig("https://nsx").LoadBalancer.CheckService(s)
		},
		New: func(t *testing.T) conformance.Subject {
			sim, server := nsxsim.New(nsxsim.Options{User: testUser, Password: testPassword})
			listening := httptest.NewServer(server)
			t.Cleanup(listening.Close)
			w := &testWorld{Bench: conformance.NewBench(t), sim: sim, server: server, cluster: clusterName, config: testConfig(listening.URL)}
			w.restart()
			w.addNode("worker", "10.0.0.1")
			w.server.ResetCalls()
			return conformance.Subject{
				Bench: w.Bench, Server: w.server, Serve: func(s *v1.Service) { w.ensure(s) },
				Ensure: func(s *v1.Service) error {
					_, err := w.try(s)
					return err
				},
			}
		},
	}.Run(t)
}

// reasonFor returns the reason for a change; "" if nothing differs.
func reasonFor[V any, T objectOf[V]](x T, apply func(T) string) string {
	_, reason := applyToCopy(x, apply)
	return reason
}

// TestSettingsByHandStay: only what annotations set is NSX's own again when they are gone.
func TestSettingsByHandStay(t *testing.T) {
	t.Parallel()
	byHand := &monitorProfile{MonitorPort: 30080, Interval: 9, Timeout: 7, RiseCount: 1, FallCount: 2}
	assert.Empty(t, reasonFor(byHand, monitorChange{port: 30080}.apply))
	set := monitorChange{30080, checkSettings{Interval: 20}}
	assert.NotEmpty(t, reasonFor(byHand, set.apply))
	m := *byHand
	set.apply(&m)
	assert.Equal(t, []int{20, 5, 3, 3}, []int{m.Interval, m.Timeout, m.RiseCount, m.FallCount})
	assert.Empty(t, reasonFor(&m, set.apply))
	assert.NotEmpty(t, reasonFor(&m, monitorChange{port: 30080}.apply))
	monitorChange{port: 30080}.apply(&m)
	assert.Equal(t, []int{5, 5, 3, 3}, []int{m.Interval, m.Timeout, m.RiseCount, m.FallCount})
	assert.Empty(t, m.Tags, "nothing of it is left")
	assert.Empty(t, byHand.Tags)

	none, hash := "", "IP_HASH"
	pool := &serverPool{Algorithm: "WEIGHTED_ROUND_ROBIN"}
	assert.Empty(t, reasonFor(pool, poolChange{algorithm: &none}.apply))
	assert.Empty(t, reasonFor(pool, poolChange{}.apply))
	poolChange{algorithm: &hash}.apply(pool)
	assert.Equal(t, hash, pool.Algorithm)
	assert.Empty(t, reasonFor(pool, poolChange{}.apply), "a change of nodes leaves it")
	assert.NotEmpty(t, reasonFor(pool, poolChange{algorithm: &none}.apply))
	poolChange{algorithm: &none}.apply(pool)
	assert.Equal(t, defaultAlgorithm, pool.Algorithm)
}
