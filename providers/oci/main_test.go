//go:debug rsa1024min=0

package oci

import (
	"testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

func TestMain(m *testing.M) { conformance.Main(m, Name) }
