package vsphere

import (
	"embed"
	"path"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsx"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts
var transcripts embed.FS

// identities are the objects of NSX by the Service and the port that their tags name.
func identities(sim *nsxsim.Sim) map[string]string {
	names := map[string]string{}
	for _, c := range collectionsOf(sim) {
		kind := strings.TrimSuffix(strings.TrimPrefix(path.Base(c), "lb-"), "s")
		for _, o := range sim.Objects(c) {
			parts := []string{kind, path.Base(o.Tag("service")), strings.ReplaceAll(o.Tag("port"), "/", "-")}
			names[o.ID()] = strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" || p == "." }), "/")
		}
	}
	return names
}

// values are annotations whose changes are written in different ways; the other numbers of health checks are written as the interval is.
var values = map[string][]conformance.Legal{
	annotationClass: {{Value: "dmz"}}, "anyccm.io/vsphere-algorithm": {{Value: "LEAST_CONNECTION"}}, "anyccm.io/vsphere-health-check-interval": {{Value: "20"}},
}

// scenarios are those of annotations, and that of what the cloud's own controller leaves.
func scenarios(t testing.TB, sim *nsxsim.Sim) []conformance.Scenario {
	t.Helper()
	one := func(annotations map[string]string) *v1.Service {
		return service("web", annotations, port("http", 80, 30080))
	}
	all := []conformance.Scenario{{Name: "takeover", Steps: []conformance.Step{
		{Name: "its Service is there, and so is what was made for it", Do: func(p *conformance.Play) { p.Leave(leftServers(sim, one(nil))) }},
		{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }},
		{Name: "a port is added", Do: func(p *conformance.Play) {
			p.Change("web", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) })
		}},
		{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
	}}}
	for _, row := range nsx.Annotations.Rows() {
		if legal := values[row.Key]; len(legal) > 0 {
			all = append(all, conformance.AnnotationScenario(row.Key, legal, one))
		}
	}
	return all
}

// untranscribed are annotations without a scenario.
var untranscribed = map[string][]string{
	"it changes a field of the write that the interval changes": {
		"anyccm.io/vsphere-health-check-timeout", "anyccm.io/vsphere-health-check-rise-count", "anyccm.io/vsphere-health-check-fall-count",
	},
}
