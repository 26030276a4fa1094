package cloudbase

import (
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Maker says how a cloud is made: of its configuration C and of A, the part of the cloud's API that it uses.
type Maker[C, A any, I cloudprovider.Interface] struct {
	// Config reads the options. It makes no call, and reports everything that is wrong with them at once (err), and what is ignored
	// or deprecated (warnings).
	Config func(registry.Inputs) (config C, warnings, err error)
	// API makes the client of the cloud's API.
	API func(C, registry.Inputs) (A, error)
	// Cloud builds the cloud. Nothing starts before Initialize.
	Cloud func(C, A, registry.Inputs) (I, error)
	// Routes reports whether the configuration asks for routes; nil where the cloud has none, or makes them always.
	Routes func(C) bool
}

// Describe completes a description by what follows from how the cloud is made: Validate, Routes and New.
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

// New makes the cloud.
func (m Maker[C, A, I]) New(in registry.Inputs) (cloud I, err error) {
	config, warnings, err := m.Config(in)
	if err != nil {
		return cloud, err
	}
	for _, w := range schema.Problems(warnings) {
		klog.Warning(w.Error())
	}
	api, err := m.API(config, in)
	if err != nil {
		return cloud, err
	}
	return m.Cloud(config, api, in)
}
