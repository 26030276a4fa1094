package shape

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// borrowed matches words of the clouds' own controllers in a text. Ours say what is wrong, and what to do.
var borrowed = regexp.MustCompile(`"[^"\n]*(?i:failed to |unable to |could not (find|allocate)|please restart|^please |for troubleshooting|ibm\.biz|` +
	`error parsing|can not be changed|not supported for|is not valid for|ipv[46] cidr|can't |loadbalancer service)[^"\n]*`)

// TestSentencesAreOurs: no error or event of ours has a sentence of a cloud's own controller. Simulators answer in their cloud's words.
func TestSentencesAreOurs(t *testing.T) {
	t.Parallel()
	read := 0
	require.NoError(t, walk(func(path string) error {
		name := strings.TrimPrefix(filepath.ToSlash(path), root+"/")
		folder, _, _ := strings.Cut(name, "/")
		ours := slices.Contains([]string{"providers", "registry", "cmd"}, folder) && !strings.Contains(filepath.Dir(name), "sim")
		if !ours || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		read++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		assert.Empty(t, borrowed.FindAllString(string(text), -1), name)
		return nil
	}))
	require.Greater(t, read, 300, "the sources were read")
}
