package aws

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInstanceKey(t *testing.T) {
	t.Parallel()
	const id = "i-0123456789abcdef0"
	for text, want := range map[string]string{
		"aws:///us-east-1a/" + id: id,
		"aws:///us-east-1b/" + id: id,
		"aws:///" + id:            id,
		"/us-east-1a/" + id:       id,
		id:                        id,
		"aws://":                  "aws://",
		"openstack:///" + id:      "",
		"digitalocean://1":        "",
		"":                        "",
	} {
		assert.Equal(t, want, instanceKey(text), text)
	}
}
