package portable

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// TestContradictorySelectors: what no node can match is refused before anything is asked.
func TestContradictorySelectors(t *testing.T) {
	t.Parallel()
	for text, wrong := range map[string]string{
		"a=b": "", "a=b,a in (b,c)": "", "a in (b,c),a!=b": "", "a,!b": "", "a!=b,a!=c": "", "!a,a!=b": "", "a>1,a<5": "", "a in (7,9),a>8": "",
		"a=b,a=c": "a", "z=y,a in (b,c),a=d": "a", "a=b,a!=b": "a", "a in (b,c),a notin (b,c)": "a", "a,!a": "a", "!a,a=b": "a", "a>5,!a": "a", "a=4,a>8": "a",
	} {
		err := checkSelector(text)
		if wrong == "" {
			require.NoError(t, err, text)
			continue
		}
		require.EqualError(t, err, "can match no node: its conditions on the label "+wrong+" exclude each other", text)
	}
}

// TestSelectorForm: the rule that the admission policy has takes just what Kubernetes reads as a label selector.
func TestSelectorForm(t *testing.T) {
	t.Parallel()
	agree := func(text string) (legal bool) {
		_, broken := schema.FirstBroken(selectorRules, text, schema.Asker{})
		_, err := labels.Parse(text)
		assert.Equal(t, err == nil, !broken, "%q: %v", text, err)
		return err == nil
	}
	for _, text := range []string{
		"", " ", "a", "!a", "! a", "!!a", "a=", "a=,b", "a==b", "a===b", "a=!b", "a!=b", "a! =b", "a= =b", "=b", ",", "a,", ",a", "a,,b",
		"a b", "a=b c",
		"a in (b)", "a in(b)", "ain (b)", "a in b", "a in ()", "a in (", "a in (b", "a in (b))", "a in (b c)",
		"a in (,)", "a in (,,)", "a in (,,,)",
		"a in (b,)", "a in (b,,)", "a in (b,,,)", "a in (,b)", "a in (,,b)", "a in (b,,c)", "a notin (b,c),!d", "a notin(b)c",
		"!a in (b)", "!a=b",
		"in in (in)", "notin", "in=notin", "a>1", "a > 5,b<007", "a>", "a>x", "a>-1", "a=-1", "a=b-", "a=.b", "a=b.c_d-e", "-a", "a-",
		"example.com/a=b",
		"example.com/", "/a", "Example.com/a", "a/b/c", "a\t=\nb\r", "a=\u00e9",
		"\u00a0a", "a=" + strings.Repeat("x", 63), "a=" + strings.Repeat("x", 64),
		strings.Repeat("x", 63), strings.Repeat("x", 64), "a.b-c/d_e.f in (1, 2 ,3)",
	} {
		agree(text)
	}
	_, broken := schema.FirstBroken(selectorRules, "a\x00,,", schema.Asker{})
	assert.True(t, broken, "Kubernetes takes this for the end of the text")
	pieces := []string{
		"a", "b-c", "d.e/f", "in", "notin", "=", "==", "!=", "!", "<", ">", "(", ")", ",", ",", " ", "\t", "5", "-", ".",
		"in (", "a=b", "a in (b,c)", "a in (", "b)", "a notin (",
	}
	rnd, legal := rand.New(rand.NewPCG(1, 2)), 0
	for range 100_000 {
		var text strings.Builder
		for range 1 + rnd.IntN(9) {
			text.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		if agree(text.String()) {
			legal++
		}
	}
	assert.Greater(t, legal, 2000, "both are tried")
}
