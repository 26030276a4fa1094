package pins

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// secretForms are how keys, tokens and passwords look; what is hidden stands in parentheses.
var secretForms = []*regexp.Regexp{
	regexp.MustCompile(`PRIVATE KEY`),
	regexp.MustCompile(`LS0tLS1CRUdJTi`), // "-----BEGIN" in base64
	regexp.MustCompile(`(?i)\bauthorization: *[^( ]`),
	regexp.MustCompile(`(?i)\b(bearer|basic) [\w+/=-]{8,}`),
	regexp.MustCompile(`(?i)"?\b(password|passwd|passphrase|secret_?key|private_?key|access_?token|refresh_?token|client_?secret)"?[:=] *"?[^"( ]`),
	regexp.MustCompile(`\beyJ[\w-]{10,}\.`),          // a JSON web token
	regexp.MustCompile(`\b(dop_v1_|AKIA)[\w]{8,}\b`), // tokens of DigitalOcean, key IDs of AWS
}

// TestTranscriptsHoldNoSecret: they show what goes to a cloud, and logins are a part of that.
func TestTranscriptsHoldNoSecret(t *testing.T) {
	t.Parallel()
	for _, planted := range []string{
		`  "private_key": "abc"`, "-----BEGIN RSA PRIVATE KEY-----", "Authorization: Bearer abcdefghijk", "password=hunter2", "dop_v1_0123456789",
	} {
		assert.True(t, holdsSecret(planted), planted)
	}
	assert.False(t, holdsSecret(`  "private_key": "(hidden)"`))
	found := 0
	for _, file := range files(t) {
		if !strings.Contains(file, "/testdata/transcripts/") {
			continue
		}
		found++
		for line := range strings.Lines(read(t, file)) {
			assert.False(t, holdsSecret(line), "%s: %s", file, line)
		}
	}
	assert.Greater(t, found, 20, "transcripts were read")
}

func holdsSecret(text string) bool {
	for _, form := range secretForms {
		if form.MatchString(text) {
			return true
		}
	}
	return false
}
