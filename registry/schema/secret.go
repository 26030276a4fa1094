package schema

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

const redacted = "[redacted]"

// secretReload is the maximum delay until a rotated credential file is noticed. The file is read each time, which costs microseconds; its
// modification time would miss a second change within one tick of the file system's clock.
const secretReload = 5 * time.Second

// Secret is a credential that no format verb, logger or encoder prints. It comes from a value or from a file;
// a file is read again when it changes, so that a rotated credential is used without a restart.
type Secret struct {
	file *secretFile
	text string
}

type secretFile struct {
	path string

	mu      sync.Mutex
	checked time.Time
	text    string
}

// NewSecret returns a secret that holds a fixed value.
func NewSecret(value string) Secret { return Secret{text: value} }

// NewSecretFile returns a secret with the content of a file, trimmed, which it follows. The file must be readable and not empty now; after
// later failures the last value is kept.
func NewSecretFile(path string) (Secret, error) {
	f := &secretFile{path: path}
	if err := f.load(); err != nil {
		return Secret{}, err
	}
	return Secret{file: f}, nil
}

func (f *secretFile) load() error {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return fmt.Errorf("reading the secret: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return fmt.Errorf("file %s is empty", f.path)
	}
	f.text, f.checked = text, time.Now()
	return nil
}

func (f *secretFile) current() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) > secretReload {
		f.checked = time.Now()
		// During a rotation the file may be missing or empty for a moment: the old value is kept.
		_ = f.load()
	}
	return f.text
}

// Reveal returns the credential itself, for the code that adds it to a request.
func (s Secret) Reveal() string {
	if s.file != nil {
		return s.file.current()
	}
	return s.text
}

// IsZero reports whether no credential was given.
func (s Secret) IsZero() bool { return s.file == nil && s.text == "" }

// String implements fmt.Stringer.
func (Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return redacted }

// Format implements fmt.Formatter, so that no verb reaches the fields.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalJSON implements json.Marshaler.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }
