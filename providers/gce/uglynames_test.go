package gce

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestUglyNames: names are those of Google's own controller to the character: a takeover finds its objects by them.
func TestUglyNames(t *testing.T) {
	t.Parallel()
	const uid = "01234567-89ab-cdef-0123-456789abcdef"
	for _, ugly := range conformance.UglyNames(26) {
		assert.Equal(t, ugly[:min(len(ugly), 26)]+"-"+uid, routeName(ugly, uid))
		assert.Equal(t, "k8s-ig--"+ugly, groupName(ugly))
		assert.Equal(t, "k8s-"+ugly+"-node", sharedCheckName(ugly))
		assert.Equal(t, "k8s-"+ugly+"-node-http-hc", sharedCheckFirewallName(ugly, false))
		assert.Equal(t, "k8s-"+ugly+"-node-hc", sharedCheckFirewallName(ugly, true))
		assert.Equal(t, "k8s-"+ugly+"-internal-udp-nmv1-6eef6648406c333a", sharedBackendName(ugly, "UDP", affinityNone))
		assert.Equal(t, "k8s-"+ugly+"-internal-tcp-nmv1-1668fd70f588116e", sharedBackendName(ugly, "TCP", affinityClient))
	}
	assert.Equal(t, "k8s-ig", groupName(""))
}
