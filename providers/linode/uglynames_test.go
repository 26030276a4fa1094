package linode

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestUglyNames: labels are Linode's own controller's to the character, cut or not.
func TestUglyNames(t *testing.T) {
	t.Parallel()
	cut := func(text string) string { return text[:min(len(text), 32)] }
	s := conformance.Service("web", nil)
	s.UID = "01234567-89ab-cdef-0123-456789abcdef"
	for _, ugly := range conformance.UglyNames(32) {
		assert.Equal(t, cut(ugly), nodeLabel(ugly))
		named := conformance.Service(ugly, nil, conformance.Port("http", 80, 30080))
		one := &addressList{IPv4: []string{"192.0.2.0/24"}}
		for action, list := range map[string]*acl{"ACCEPT": {Allow: one}, "DROP": {Deny: one}} {
			rules, err := firewallRules(list, named, "ccm-0123456789ab")
			assert.NoError(t, err)
			assert.Equal(t, cut(action+"-"+ugly), rules.Inbound[0].Label)
			assert.Equal(t, "Created by linode-ccm: ccm-0123456789ab, for "+ugly, rules.Inbound[0].Description)
		}
	}
	for _, short := range []string{"1", "a-", "-."} {
		assert.Equal(t, "node-"+short, nodeLabel(short))
	}
	assert.Equal(t, "ccm_1--0123456789ab", label("ccm_1-", s))
	for _, text := range conformance.UglyNames(100) {
		want := text
		if len(text) > 100 {
			want = text[:97] + "..."
		}
		assert.Equal(t, want, cutWithDots(text, 100))
	}
}
