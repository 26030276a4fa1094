package openstack

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInstanceKey(t *testing.T) {
	t.Parallel()
	const id = "6f3c1f4e-2f8c-4f5e-9c55-5f0b9c3a1d10"
	for text, want := range map[string]string{
		"openstack:///" + id:       id,
		"openstack://region/" + id: id,
		"/" + id:                   id,
		"region/" + id:             id,
		"openstack://" + id:        "openstack://" + id,
		"openstack:///a/b":         "openstack:///a/b",
		id:                         "",
		"aws:///zone/" + id:        "",
		"digitalocean://1":         "",
		"":                         "",
	} {
		assert.Equal(t, want, instanceKey(text), text)
	}
}
