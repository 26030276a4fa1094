package openstack

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestUglyNames: names are OpenStack's own controller's to the character, cut or not: a takeover finds its objects by them.
func TestUglyNames(t *testing.T) {
	t.Parallel()
	cut := func(text string, most int) string { return text[:min(len(text), most)] }
	s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc", UID: "0123"}}
	for _, ugly := range conformance.UglyNames(255 - len("kube_service__ns_svc")) {
		name := cut("kube_service_"+ugly+"_ns_svc", 255)
		assert.Equal(t, name, loadBalancerName(ugly, s))
		assert.Equal(t, cut("listener_12_"+name, 255), partName("listener", 12, name))
		assert.Equal(t, cut("Kubernetes external service ns/svc from cluster "+ugly, 255), loadBalancerDescription(ugly, s))
		assert.Equal(t, cut("Floating IP for Kubernetes external service ns/svc from cluster "+ugly, 255), floatingIPDescription(ugly, s))
	}
	for _, ugly := range conformance.UglyNames(255 - len("lb-sg-0123-ns-")) {
		named := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: ugly, UID: "0123"}}
		assert.Equal(t, cut("lb-sg-0123-ns-"+ugly, 255), securityGroupName(named))
	}
	for _, ugly := range conformance.UglyNames(63) { // zones as labels; theirs are not trimmed after the cut, which Kubernetes refuses
		assert.Equal(t, strings.TrimRight(cut(strings.Trim(ugly, "-_."), 63), "-_."), sanitize(ugly))
	}
}
