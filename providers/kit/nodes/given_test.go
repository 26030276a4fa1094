package nodes

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

func TestGivenFirst(t *testing.T) {
	t.Parallel()
	has := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("2001:db8::1")}
	for given, want := range map[string]string{
		"": "[10.0.0.1 10.0.0.2 2001:db8::1]", "10.0.0.2": "[10.0.0.2 10.0.0.1 2001:db8::1]", "2001:db8::1, 10.0.0.2": "[2001:db8::1 10.0.0.2 10.0.0.1]",
		"10.0.0.9": "10.0.0.9", "10.0.0.1,10.0.0.9": "10.0.0.9", "nonsense": "[10.0.0.1 10.0.0.2 2001:db8::1]",
	} {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: given}}}
		ordered, lacks := GivenFirst(n, has)
		got := fmt.Sprint(ordered)
		if lacks.IsValid() {
			got = lacks.String()
		}
		assert.Equal(t, want, got, given)
	}
	assert.Equal(t, "10.0.0.1", has[0].String(), "what is given stays as it is")
}
