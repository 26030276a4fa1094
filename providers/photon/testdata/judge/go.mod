module github.com/anyccm/cloud-controller-manager/providers/photon/testdata/judge

go 1.26.0

require github.com/vmware/photon-controller-go-sdk v0.0.0-20170310013346-4a435daef6cc

require (
	github.com/onsi/ginkgo v1.16.5 // indirect
	github.com/onsi/gomega v1.44.0 // indirect
)
