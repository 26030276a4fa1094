package ibm

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestUglyNames: names are IBM's own controller's to the character, cut or not. The group is ours, and keeps the whole UID.
func TestUglyNames(t *testing.T) {
	t.Parallel()
	s := conformance.Service("web", nil)
	s.UID = "01234567-89ab-cdef-0123-456789abcdef"
	const digits = "0123456789abcdef0123456789abcdef"
	for _, ugly := range conformance.UglyNames(63 - len("kube--"+digits)) {
		whole := "kube-" + ugly + "-" + digits
		assert.Equal(t, whole[:min(len(whole), 63)], ownName(ugly, s))
		assert.Equal(t, "kube-"+ugly[:min(len(ugly), 25)]+"-"+digits, groupName(ugly, s))
	}
}
