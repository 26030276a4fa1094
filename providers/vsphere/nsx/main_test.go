package nsx

import (
	"testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

func TestMain(m *testing.M) { conformance.Main(m, provider) }
