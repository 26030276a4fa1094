package aws

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestUglyNames: names are AWS's own controller's to the character, and no name is longer than AWS takes.
func TestUglyNames(t *testing.T) {
	t.Parallel()
	part := func(text string) string {
		for _, sign := range []string{"-", ".", "_"} {
			text = strings.ReplaceAll(text, sign, "")
		}
		return text[:min(len(text), 8)]
	}
	for _, ugly := range conformance.UglyNames(8) {
		for _, s := range []struct{ namespace, name string }{{ugly, "web"}, {"shop", ugly}, {ugly, ugly}} {
			service := identified(s.namespace, s.name, "12-34")
			prefix := "k8s-" + part(s.namespace) + "-" + part(s.name) + "-"
			sum := sha256.Sum256([]byte("one" + s.name + s.namespace + "12-34"))
			assert.Equal(t, prefix+hex.EncodeToString(sum[:5]), managedGroupName("one", service))
			of := desiredTargetGroup{protocol: "TCP", targetType: "instance", port: 30080, check: healthCheck{protocol: "TCP", interval: 30}}
			digest := sha1.Sum([]byte("one" + s.namespace + s.name + "80" + "30080" + "TCP" + "instance" + "TCP" + "30"))
			group := targetGroupName("one", service, 80, of)
			assert.Equal(t, prefix+hex.EncodeToString(digest[:5]), group)
			assert.LessOrEqual(t, len(group), 32)
		}
	}
}
