package oci

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestUglyNames: names are Oracle's own controller's to the character, cut or not: a takeover finds its objects by them.
func TestUglyNames(t *testing.T) {
	t.Parallel()
	s := conformance.Service("web", nil)
	cut := func(text string, most int) string { return text[:min(len(text), most)] }
	for _, ugly := range conformance.UglyNames(1024 - len("-"+string(s.UID))) {
		prefix := ugly + "-"
		if strings.HasSuffix(ugly, "-") {
			prefix = ugly
		}
		assert.Equal(t, cut(prefix+string(s.UID), 1024), balancerName(ugly, s))
		named := conformance.Service(ugly, nil)
		whole := named.Namespace + "/" + ugly + "/" + string(named.UID)
		assert.Equal(t, cut(whole, 1024), nlbName(named))
		assert.Equal(t, cut(whole+"/nsg", 255), groupName(named))
	}
}
