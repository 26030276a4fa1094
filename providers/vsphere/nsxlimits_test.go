package vsphere

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNamesBeyondTheLimits: a Service whose objects NSX would refuse for their names is refused before a write.
func TestNamesBeyondTheLimits(t *testing.T) {
	t.Parallel()
	s := service("web", nil, port("http", 80, 30080))
	room := 255 - len(loadBalancerName("", s)) - len(":65535")
	require.NoError(t, checkLengths(strings.Repeat("c", room), s))
	require.ErrorContains(t, checkLengths(strings.Repeat("c", room+1), s),
		"would have 256 characters, and the cloud takes at most 255; shorten --cluster-name or the Service's name")
}
