package cloudbase

import (
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// Maker creates a cloud from its configuration C and A, the part of the cloud's API that it uses.
type Maker[C, A any, I cloudprovider.Interface] struct {
	// Config reads the options without any call. It reports all faults at once (err), and ignored or deprecated options (warnings).
	Config func(registry.Inputs) (config C, warnings, err error)
	// API creates the client of the cloud's API.
	API func(C, registry.Inputs) (A, error)
	// Cloud builds the cloud. Nothing starts before Initialize.
	Cloud func(C, A, registry.Inputs) (I, error)
	// Routes reports whether the configuration enables routes; nil if the cloud has none, or always has them.
	Routes func(C) bool
}

// Describe adds to a description the functions that follow from the Maker: Validate, Routes and New.
func (m Maker[C, A, I]) Describe(p registry.Provider) registry.Provider {
	p.Validate, p.New = m.validate, registry.Maker(m.New)
	p.Warnings = func(in registry.Inputs) error {
		_, warnings, _ := m.Config(in) // Validate reports what is wrong
		return warnings
	}
	if m.Routes != nil {
		p.Routes = func(in registry.Inputs) bool {
			config, _, err := m.Config(in)
			return err == nil && m.Routes(config)
		}
	}
	return p
}

func (m Maker[C, A, I]) validate(in registry.Inputs) error {
	_, _, err := m.Config(in)
	return err
}

// New makes the cloud. Warnings are for the caller to print: see registry.Provider.Warnings.
func (m Maker[C, A, I]) New(in registry.Inputs) (cloud I, err error) {
	config, _, err := m.Config(in)
	if err != nil {
		return cloud, err
	}
	api, err := m.API(config, in)
	if err != nil {
		return cloud, err
	}
	return m.Cloud(config, api, in)
}
