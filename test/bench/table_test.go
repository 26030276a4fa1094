package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReplaced(t *testing.T) {
	const page = "# Sizing\n\nintro\n\n<!-- end of measurements -->\n\n## Further\n"
	one, err := replaced(page, "alpha", "first")
	require.NoError(t, err)
	both, err := replaced(one, "beta", "other")
	require.NoError(t, err)
	assert.Equal(t, "# Sizing\n\nintro\n\n<!-- measured: alpha -->\nfirst\n<!-- measured -->\n\n"+
		"<!-- measured: beta -->\nother\n<!-- measured -->\n\n<!-- end of measurements -->\n\n## Further\n", both)
	again, err := replaced(both, "alpha", "second")
	require.NoError(t, err)
	assert.Equal(t, strings.Replace(both, "first", "second", 1), again, "the others stay")

	_, err = replaced("# Sizing\n", "alpha", "first")
	assert.ErrorContains(t, err, "end of measurements")
	_, err = replaced("<!-- measured: alpha -->\nfirst\n", "alpha", "second")
	assert.ErrorContains(t, err, "is missing after")
}

func TestRow(t *testing.T) {
	p := phase{
		name: "creation", took: 12340 * time.Millisecond, reads: 7, writes: 600, kube: 2001, cpu: 3 * time.Second,
		memory: 91 << 20, peak: 105 << 20, floor: 500,
	}
	assert.Equal(t, "| 500 | 1000 | creation | 12.3 s | 7 | 600 | 500 | 1.20 | 2001 | 3.0 s | 91 MiB | 105 MiB |", row(500, 1000, p))
	p.floor = 0
	assert.Contains(t, row(500, 1000, p), "| 600 | - | - |")
	head, rule, _ := strings.Cut(header(), "\n")
	assert.Equal(t, strings.Count(head, "|"), strings.Count(row(1, 2, p), "|"))
	assert.Equal(t, strings.Count(head, "|"), strings.Count(rule, "|"))
}

func TestNumbersOf(t *testing.T) {
	got, err := numbersOf("500,1000")
	require.NoError(t, err)
	assert.Equal(t, []int{500, 1000}, got)
	got, err = numbersOf("")
	require.NoError(t, err)
	assert.Empty(t, got)
	for _, wrong := range []string{"0", "-3", "many", "500 1000"} {
		_, err := numbersOf(wrong)
		assert.ErrorContains(t, err, "--services", wrong)
	}
}
