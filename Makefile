# AnyCCM. `make help` lists the targets.

GO        ?= go
PROVIDER  ?= digitalocean
NODES     ?= 3
ONESHOT   ?=
BIN       := $(CURDIR)/bin
MODULE_PATH := github.com/anyccm/cloud-controller-manager
APP       := $(MODULE_PATH)/cmd/cloud-controller-manager/app

VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT    ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)

# One set of build flags everywhere, so that the build cache is shared and the linker can drop unused SDK methods: the
# tag grpcnotrace keeps html/template, whose reflection would hold them all, out of the binary.
TAGS      := grpcnotrace
STAMP     := -X $(APP).version=$(VERSION) -X $(APP).commit=$(COMMIT)
BUILD     := CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS)
# The same with a line of progress every few seconds. The tool is built like the demo where its tools are at hand (FastBuildFlags in
# build/gobuild).
TOOL      := CGO_ENABLED=0 $(GO) run -trimpath "-gcflags=all=-l -dwarf=false -c=1" "-gcflags=runtime=-l -dwarf=false" "-gcflags=github.com/anyccm/...=-l -dwarf=false" ./build/tool
comma     := ,
space     := $(subst ,, )

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# A name that is no provider's ends a build at once, with the list of those that are.
CLOUDS     = $(sort $(filter-out kit,$(patsubst providers/%/,%,$(wildcard providers/*/))))
check-names = $(if $(filter-out $(CLOUDS),$(1)),$(error there is no provider $(filter-out $(CLOUDS),$(1)); there are $(CLOUDS)))

.PHONY: build
build: ## Build bin/cloud-controller-manager; PROVIDERS="a b" builds a slim binary with these clouds alone
ifdef PROVIDERS
	$(call check-names,$(PROVIDERS))
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS),slim,$(subst $(space),$(comma),$(PROVIDERS:%=provider_%)) -ldflags "-s -w $(STAMP)" \
		-o $(BIN)/cloud-controller-manager-$(subst $(space),-,$(PROVIDERS)) ./cmd/cloud-controller-manager
else
	$(BUILD) -ldflags "-s -w $(STAMP)" -o $(BIN)/cloud-controller-manager ./cmd/cloud-controller-manager
endif

# A helm or kubectl on the PATH is used if its version fits.
$(BIN)/helm: build/helm/go.mod build/helm/go.sum
	@$(TOOL) helm -o $@

$(BIN)/kubectl: build/kubectl/go.mod build/kubectl/go.sum build/kubectl/main.go
	@$(TOOL) kubectl -o $@

.PHONY: tools-for-tests
tools-for-tests: build $(BIN)/helm $(BIN)/kubectl ## Build the programs that the end-to-end tests start
	$(BUILD) -ldflags "-s -w" -o $(BIN)/cloudsim ./cmd/cloudsim

# The demo runs one cloud, so the programs of that cloud alone are built.
DEMO      := $(BIN)/demo-$(PROVIDER)
DEMO_TAGS := $(TAGS),slim,provider_$(PROVIDER)

.PHONY: demo
demo: ## Show everything on this machine: PROVIDER=digitalocean NODES=3 ONESHOT=1
	$(call check-names,$(PROVIDER))
	@$(MAKE) --no-print-directory $(BIN)/helm
	@mkdir -p $(DEMO) && ln -sf ../helm $(DEMO)/helm
	@$(TOOL) build -demo -name "the demo" -tags $(DEMO_TAGS) -ldflags "-s -w $(STAMP)" -o $(DEMO) ./cmd/cloud-controller-manager ./cmd/cloudsim ./test/demo
	@ANYCCM_BIN=$(DEMO) $(DEMO)/demo -provider=$(PROVIDER) -nodes=$(NODES) $(if $(ONESHOT),-oneshot)

.PHONY: bench
bench: tools-for-tests ## Measure 100, 1,000 and 5,000 nodes, 500 and 1,000 load balancers; BENCH_FLAGS="-nodes=100 -services=20"; WRITE=1 puts load balancers into docs/sizing.md
	ANYCCM_BIN=$(BIN) $(GO) run -trimpath -tags $(TAGS) ./test/bench -provider=$(PROVIDER) $(if $(WRITE),-write=docs/sizing.md) $(BENCH_FLAGS)

# Tests. docs/testing.md says what is tried where. Nothing of the environment changes what `make test` runs; TESTFLAGS=-count=1 is added to its
# `go test`s. `go vet` is no part of them, for it reads every SDK once more: the linters of make verify have its checks.
TESTFLAGS :=
export ANYCCM_TIER    :=
export SOAK_SEED      :=
export SOAK_SCHEDULES :=
# build/stages has go's events written, of which it shows what people need.
EVENTS    :=
STAGES     = CGO_ENABLED=0 $(GO) run -trimpath -tags $(TAGS) ./build/stages -make=$(MAKE)
# What debuggers read is a third of what linking costs.
GOTEST    := $(GO) test -vet=off -trimpath -tags $(TAGS) -ldflags=-w -timeout 30m $(EVENTS) $(TESTFLAGS)
# The race detector needs a C compiler, which Go alone does not.
CC_FOUND   = $(shell set -- $$($(GO) env CC); command -v "$$1")
# Compilers that collect their garbage less often are done an eighth sooner; from 3 GiB on they collect it as often as they must.
export GOGC ?= 400
export GOMEMLIMIT ?= 3GiB
# Worlds of virtual time start goroutines by the thousand, whose stacks would else grow step by step.
export GODEBUG ?= adaptivestackstart=1
# The race detector needs everything compiled once more: without inlining and debug data that takes two thirds of the time.
RACE      := -race "-gcflags=all=-l -dwarf=false"
# What all clouds are made of runs with the race detector: the template cloud's tests are those of kit and guard. The rest runs without;
# APART has targets of its own, for it starts programs or builds what is no part of this module.
in_module  = $(addprefix $(MODULE_PATH)/,$(1))
PACKAGES   = $(shell $(GO) list -tags $(TAGS) ./...)
RACED      = $(filter $(call in_module,registry registry/% providers/kit/% cmd/cloud-controller-manager/app build/newprovider/xcloud build/newprovider/xcloud/%),$(PACKAGES))
APART      = $(call in_module,test/e2e test/acceptance test/chart test/release test/othermodule build/newprovider)
UNRACED    = $(filter-out $(RACED) $(APART),$(PACKAGES))

# What computes runs beside what waits for clusters, so that neither leaves the cores idle.
.PHONY: test
test: tools-for-tests ## Run the tests that every change passes
	@$(STAGES) "test-shared test-unit test-chart" test-e2e test-acceptance

NOTED      = $(if $(CC_FOUND),:,echo "Note: no C compiler here; these tests run without the race detector")

.PHONY: test-shared
test-shared: ## Registry, kit, program and the template cloud, with the race detector where there is a C compiler
	@$(NOTED)
	@CGO_ENABLED=$(if $(CC_FOUND),1,0) $(GOTEST) $(if $(CC_FOUND),$(RACE)) $(RACED)

# Simulated worlds are small and short: collected seldom, they take a tenth less time and less than half a gigabyte.
SELDOM     = 1000
.PHONY: test-unit
test-unit: ## Each cloud, and the tools: all that has no target of its own
	@GOGC=$(SELDOM) CGO_ENABLED=0 $(GOTEST) $(UNRACED)
	@$(FRAMEWORK)

# The framework itself has a race, so these cannot run with the detector.
FRAMEWORK  = CGO_ENABLED=0 $(GOTEST) -run '^(TestRelist|TestTheStandInIsTheNodes|TestANodeThatJoins|TestTheLogCountsNodes|TestSlowLoadBalancer|TestBlockedCall|TestBlockedLook)$$' ./cmd/cloud-controller-manager/app

.PHONY: test-chart
test-chart: $(BIN)/helm ## What the Helm chart renders, and whether the newest Kubernetes takes it; TESTFLAGS=-update updates the snapshots
	@$(CHART)
	@$(call kubernetes-types,go.mod)

CHART      = ANYCCM_BIN=$(BIN) CGO_ENABLED=0 $(GO) test -vet=off -count=1 -trimpath -tags $(TAGS) -ldflags=-w -timeout 20m $(EVENTS) ./test/chart $(TESTFLAGS)

RENDERED   = $(CURDIR)/test/chart/testdata/*/rendered.yaml $(CURDIR)/providers/*/testdata/chart/*/rendered.yaml
kubernetes-types = CGO_ENABLED=0 $(GO) run -C build/kubernetes -trimpath -modfile=$(1) . $(RENDERED)

E2E        = ANYCCM_BIN=$(BIN) CGO_ENABLED=0 $(GOTEST) -count=1 -parallel 10 ./test/e2e

.PHONY: test-e2e
test-e2e: tools-for-tests ## The built program against a real kube-apiserver and simulated clouds
	@$(E2E)

.PHONY: test-acceptance
test-acceptance: tools-for-tests ## The acceptance suite against the built program and simulated clouds
	@ANYCCM_BIN=$(BIN) CGO_ENABLED=0 $(GOTEST) -count=1 -parallel 6 ./test/acceptance

# What belongs to one cloud and is no part of make test: CLOUD=aws. Clients and descriptions of the cloud's API judge its simulator where
# they can be had: ANYCCM_PYTHON, ANYCCM_REFERENCE.
.PHONY: test-cloud
test-cloud: ## All tests of one cloud, and those of make test with the race detector: CLOUD=aws
	$(if $(CLOUD),,$(error CLOUD is empty; name one: make test-cloud CLOUD=aws))
	$(call check-names,$(CLOUD))
	@$(STAGES) "test-cloud-full test-cloud-raced"

.PHONY: test-cloud-full
test-cloud-full: ## The part of test-cloud that leaves nothing out
	@$(FULL) CGO_ENABLED=0 $(GOTEST) ./providers/$(CLOUD)/...

.PHONY: test-cloud-raced
test-cloud-raced: ## The part of test-cloud with the race detector
	@$(NOTED)
	@$(if $(CC_FOUND),CGO_ENABLED=1 $(GOTEST) $(RACE) ./providers/$(CLOUD)/...)

FULL      := ANYCCM_TIER=all

.PHONY: clients
clients: ## Install the clients in Python that judge simulators into bin/.python; says which cannot be had
	python3 -m venv bin/.python
	for cloud in gce ovirt cloudstack oci ibm; do \
		timeout 600 bin/.python/bin/python -m pip install --quiet --disable-pip-version-check --no-input -r providers/$$cloud/testdata/clients.txt 2>/dev/null \
			|| echo "Without the clients for $$cloud: they could not be installed"; \
	done

.PHONY: test-builds
test-builds: build ## Images, releases, a provider in a module of its own, Prometheus, kubeadm, older Kubernetes types
	$(GO) -C build/image mod download
	CGO_ENABLED=0 $(GOTEST) ./test/othermodule ./build/newprovider
	CGO_ENABLED=0 $(GO) -C build/goreleaser test -vet=off -trimpath ./...
	ANYCCM_BIN=$(BIN) CGO_ENABLED=0 $(GO) -C build/image test -vet=off -count=1 -trimpath ./...
	CGO_ENABLED=0 $(GO) -C build/prometheus test -vet=off -trimpath -tags $(TAGS) ./...
	CGO_ENABLED=0 $(GO) -C build/kubernetes test -vet=off -trimpath ./...
	CGO_ENABLED=0 $(GO) -C build/kubeadm test -vet=off -count=1 -trimpath -tags $(TAGS) ./...
	for module in $(notdir $(wildcard build/kubernetes/1.*.mod)); do $(call kubernetes-types,$$module) || exit 1; done

# Some hours on 2 cores.
.PHONY: test-all
test-all: tools-for-tests test-builds ## Everything: every cloud, every call, the race detector, random schedules, a release
	@$(STAGES) "test-all-packages test-all-clusters"
	$(MAKE) soak release-check test-oldest

.PHONY: test-all-packages
test-all-packages: ## The part of test-all without clusters: every package with the race detector
	@$(NOTED)
	@$(FULL) CGO_ENABLED=$(if $(CC_FOUND),1,0) $(GO) test -vet=off -trimpath -tags $(TAGS) -timeout 6h $(EVENTS) $(if $(CC_FOUND),$(RACE)) $(filter-out $(APART),$(PACKAGES))
	@$(FRAMEWORK)

.PHONY: test-all-clusters
test-all-clusters: tools-for-tests ## The part of test-all with clusters: end to end and the acceptance suite on every cloud, the chart
	@$(FULL) ANYCCM_BIN=$(BIN) CGO_ENABLED=0 $(GOTEST) -count=1 -timeout 4h -parallel 8 ./test/e2e ./test/acceptance
	@$(FULL) $(CHART)
	@$(call kubernetes-types,go.mod)

# The architectures of images and releases.
ARCHES    := amd64 arm64
IMAGE     := cloud-controller-manager$(if $(PROVIDERS),-$(subst $(space),-,$(PROVIDERS)))
SLIM      := $(if $(PROVIDERS),$(comma)slim$(comma)$(subst $(space),$(comma),$(PROVIDERS:%=provider_%)))

.PHONY: image
image: ## Write dist/image/<name> as an OCI layout for amd64 and arm64; PROVIDERS="a b" makes a slim one
	for arch in $(ARCHES); do \
		echo "Building $(IMAGE) for $$arch"; \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -tags $(TAGS)$(SLIM) -ldflags "-s -w $(STAMP)" -o dist/bin/$(IMAGE)-$$arch ./cmd/cloud-controller-manager || exit 1; \
	done
	$(GO) run -C build/image -trimpath . -out $(CURDIR)/dist/image/$(IMAGE) -version $(VERSION) -revision $(COMMIT) $(foreach a,$(ARCHES),$(a)=$(CURDIR)/dist/bin/$(IMAGE)-$(a))

WRITE     ?=

.PHONY: size
size: ## Compare the sizes of all builds with their limits; WRITE=1 puts them into the documentation
	CGO_ENABLED=0 $(GO) run -trimpath -tags $(TAGS) ./build/size $(if $(WRITE),-write)

# Its report is kept in dist/acceptance; a second run for the same cloud is compared with the first. ACCEPTANCE has further flags.
.PHONY: acceptance
acceptance: build ## Try an installed release on any cluster: PROVIDER=<cloud> KUBECONFIG=<file> ACCEPTANCE="-skip=traffic -yes"
	$(call check-names,$(PROVIDER))
	$(if $(KUBECONFIG),,$(error KUBECONFIG is empty; name the kubeconfig of the cluster that is tried))
	@$(BUILD) -o $(BIN)/acceptance ./test/acceptance
	@$(BIN)/acceptance -provider=$(PROVIDER) -kubeconfig=$(KUBECONFIG) -program=$(BIN)/cloud-controller-manager \
		-results=dist/acceptance/$(PROVIDER).json $(ACCEPTANCE)

# No part of .ci/run: these services are no part of a checkout, and their times mean something on an idle machine alone. RECORD=1 puts the
# results into the documentation. What is tried, and what is needed for it, docs/acceptance.md says.
REAL       = ANYCCM_BIN=$(BIN) $(BIN)/realclouds -acceptance=$(BIN)/acceptance $(ONLY:%=-only=%)
# A run of some parts has a record of its own.
RECORDED   = test/realclouds/results/$(1)$(subst $(comma),-,$(ONLY:%=-%)).json

.PHONY: acceptance-programs
acceptance-programs: tools-for-tests ## Build the programs that try real services
	@$(BUILD) -o $(BIN)/acceptance ./test/acceptance
	@$(BUILD) -o $(BIN)/realclouds ./test/realclouds

.PHONY: acceptance-openstack
acceptance-openstack: acceptance-programs ## Try OpenStack's own services: ANYCCM_OPENSTACK=<folder of their scripts> RECORD=1
	@$(REAL) -services=openstack $(if $(RECORD),-record=$(call RECORDED,openstack))
	$(if $(RECORD),$(MAKE) generate)

.PHONY: acceptance-aws
acceptance-aws: acceptance-programs ## Try moto in place of AWS; installs it from PyPI where there is none: RECORD=1
	@$(REAL) -services=aws $(if $(RECORD),-record=$(call RECORDED,aws))
	$(if $(RECORD),$(MAKE) generate)

.PHONY: acceptance-vsphere
acceptance-vsphere: acceptance-programs ## Try vcsim in place of vCenter: RECORD=1
	@$(REAL) -services=vsphere $(if $(RECORD),-record=$(call RECORDED,vsphere))
	$(if $(RECORD),$(MAKE) generate)

.PHONY: acceptance-keepalived
acceptance-keepalived: acceptance-programs ## Try keepalived itself in network namespaces; unpacks Debian's package: RECORD=1
	@$(REAL) -services=keepalived $(if $(RECORD),-record=$(call RECORDED,keepalived))
	$(if $(RECORD),$(MAKE) generate)

# The oldest Kubernetes that is promised; docs/support.md has it from the same folder.
OLDEST    := $(patsubst %.mod,%,$(notdir $(firstword $(sort $(wildcard build/kubernetes/1.*.mod)))))
ENVTEST   := $(GO) run sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1

# No part of .ci/run: the binaries are downloaded, which it must not need. The workflow versions runs it.
.PHONY: test-oldest
test-oldest: tools-for-tests ## The end-to-end tests on the oldest Kubernetes that is promised; downloads its control plane by setup-envtest
	assets=$$($(ENVTEST) use $(OLDEST).x -p path) && export KUBEBUILDER_ASSETS=$$assets && $(FULL) $(E2E) -timeout 4h

SOAK      ?= 3m
SEED      ?=

.PHONY: soak
soak: tools-for-tests ## Random schedules, then a random run of the built program: SOAK=3m SEED=1
	CGO_ENABLED=0 SOAK_SCHEDULES=200 $(GOTEST) -parallel 10 -run TestSchedules ./providers/...
	ANYCCM_BIN=$(BIN) $(GO) run -trimpath -tags $(TAGS) ./test/soak -duration=$(SOAK) $(if $(SEED),-seed=$(SEED)) -provider=$(PROVIDER)

.PHONY: mutants
mutants: ## Seed faults into the sources, and see that tests catch each: MUTANTS="linode" for some, MUTANTS=-list for their list
	CGO_ENABLED=0 $(GO) run -trimpath -tags $(TAGS) ./test/mutants $(MUTANTS)

.PHONY: new-provider
new-provider: ## Write a new provider that compiles and passes its tests: NAME=toy, or as a module of its own NAME=toy MODULE=example.com/toy-ccm DIR=../toy-ccm
	CGO_ENABLED=0 $(GO) run -trimpath -tags $(TAGS) ./build/newprovider -name=$(NAME) -module=$(MODULE) -dir=$(DIR)

.PHONY: generate
generate: ## Write the files that follow from the providers' folders
	CGO_ENABLED=0 $(GO) run -trimpath -tags $(TAGS) ./build/generate

$(BIN)/golangci-lint: build/tools/go.mod build/tools/go.sum
	@echo "Building golangci-lint from source; this happens once."
	@$(TOOL) build -name golangci-lint -C build/tools -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: lint
lint: $(BIN)/golangci-lint ## Run the linters
	GOGC=$(or $(GOGC),400) CGO_ENABLED=0 GOFLAGS=-trimpath $(BIN)/golangci-lint run ./...

$(BIN)/goreleaser: build/goreleaser/go.mod build/goreleaser/go.sum
	@echo "Building goreleaser from source; this happens once."
	@$(TOOL) build -name goreleaser -C build/goreleaser -o $@ github.com/goreleaser/goreleaser/v2

$(BIN)/materials: $(wildcard build/materials/*.go)
	$(BUILD) -o $@ ./build/materials

.PHONY: licenses
licenses: build $(BIN)/materials ## Write dist/THIRD-PARTY-LICENSES; fails on a licence that does not go with ours
	@mkdir -p dist
	$(BIN)/materials -licenses dist/THIRD-PARTY-LICENSES $(BIN)/cloud-controller-manager

# The version of chart and images; that of the binaries comes from the same tag.
RELEASE   = $(patsubst v%,%,$(shell git describe --tags --exact-match 2>/dev/null))

# What is released is made with the pinned helm alone, whatever is on the PATH.
PINNED    := $(BIN)/pinned/helm

$(PINNED): build/helm/go.mod build/helm/go.sum
	@echo "Building helm from source; this happens once."
	@$(TOOL) build -name helm -C build/helm -o $@ helm.sh/helm/v4/cmd/helm

# A release without a tag says so before anything is built.
.PHONY: need-tag
need-tag: ## Fail unless a tag is checked out
	@test -n "$(RELEASE)" || { echo "Error: this commit has no tag; check one out, or run make snapshot"; exit 1; }

.PHONY: release-files
release-files: need-tag licenses $(PINNED) $(BIN)/goreleaser ## The part of a release that makes charts, manifests and notes
	rm -rf dist/charts dist/chart && mkdir -p dist/chart && cp -R charts/cloud-controller-manager dist/chart/
	$(if $(REGISTRY),sed -i.orig 's|^  repository: cloud-controller-manager$$|  repository: $(REGISTRY)/cloud-controller-manager|' dist/chart/cloud-controller-manager/values.yaml && rm dist/chart/cloud-controller-manager/values.yaml.orig)
	$(PINNED) package dist/chart/cloud-controller-manager --version $(RELEASE) --app-version $(RELEASE) -d dist/charts
	rm -rf dist/manifests && mkdir -p dist/manifests
	for values in charts/cloud-controller-manager/ci/*-values.yaml; do \
		name=$$(basename $${values%-values.yaml}); \
		$(PINNED) template cloud-controller-manager dist/charts/cloud-controller-manager-$(RELEASE).tgz --namespace kube-system --values $$values \
			--set image.repository=$(or $(REGISTRY),registry.example.com)/cloud-controller-manager > dist/manifests/cloud-controller-manager-$$name.yaml || exit 1; \
	done
	awk '/^## /{n++} n==1' CHANGELOG.md > dist/notes.md

# An image holds the very binaries of the archives.
.PHONY: release-images
release-images: ## The part of a release that makes images of its binaries
	for folder in dist/release/*_linux_amd64_v1; do \
		name=$$(basename $${folder%_linux_amd64_v1}); \
		$(GO) run -C build/image -trimpath . -out $(CURDIR)/dist/image/$$name -version $(RELEASE) -revision $(COMMIT) \
			$(foreach a,$(ARCHES),$(a)=$$(echo $(CURDIR)/dist/release/$${name}_linux_$(a)_*/cloud-controller-manager)) || exit 1; \
	done

.PHONY: snapshot
snapshot: RELEASE = 0.0.0-snapshot.g$(shell git rev-parse --short HEAD)
snapshot: release-files ## All of a release under dist/, unsigned and not published
	RELEASE=$(RELEASE) PATH=$(BIN):$$PATH $(BIN)/goreleaser release --snapshot --clean --skip=sign,publish,announce --release-notes=dist/notes.md
	$(MAKE) release-images RELEASE=$(RELEASE)

.PHONY: release
release: release-files ## Release the tag that is checked out; needs the repository's token and cosign
	PATH=$(BIN):$$PATH $(BIN)/goreleaser release --clean --release-notes=dist/notes.md
	$(MAKE) release-images RELEASE=$(RELEASE)

CRANE     := $(GO) run github.com/google/go-containerregistry/cmd/crane@v0.22.1

# What is signed is what was built, by its digest: a registry that answers with another one gets no signature for it.
.PHONY: publish
publish: ## Push what a release or snapshot made: REGISTRY=registry.example.com/anyccm RELEASE=1.2.3 SIGN=1
	@test -n "$(REGISTRY)" || { echo "Error: REGISTRY is empty; say where to: make publish REGISTRY=registry.example.com/anyccm"; exit 1; }
	@test -n "$(RELEASE)" || { echo "Error: RELEASE is empty; name the version under dist/: make publish RELEASE=1.2.3"; exit 1; }
	rm -f dist/images.sha256
	for layout in dist/image/*; do \
		image=$(REGISTRY)/$$(basename $$layout); \
		$(CRANE) push --index $$layout $$image:$(RELEASE) || exit 1; \
		digest=$$(sha256sum < $$layout/index.json | cut -d' ' -f1); \
		echo "$$digest  $$image" >> dist/images.sha256; \
		test -z "$(SIGN)" || cosign sign --yes $$image@sha256:$$digest || exit 1; \
		for bill in dist/release/$$(basename $$layout)_$(RELEASE)_linux_*.cdx.json; do \
			test -z "$(SIGN)" || cosign attest --yes --type cyclonedx --predicate $$bill $$image@sha256:$$digest || exit 1; \
		done; \
	done
	$(PINNED) push dist/charts/cloud-controller-manager-$(RELEASE).tgz oci://$(REGISTRY)/charts $(HELM_PUSH_FLAGS) 2>&1 | tee dist/chart.push
	@digest=$$(sed -n 's/^Digest: *//p' dist/chart.push); \
	test -n "$$digest" || { echo "Error: the chart was not pushed"; exit 1; }; \
	test -z "$(SIGN)" || cosign sign --yes $(REGISTRY)/charts/cloud-controller-manager@$$digest

.PHONY: release-check
release-check: $(BIN)/goreleaser ## A snapshot, and whether everything is in it
	$(BIN)/goreleaser check
	$(MAKE) snapshot
	ANYCCM_DIST=$(CURDIR)/dist CGO_ENABLED=0 $(GO) test -count=1 -trimpath -tags $(TAGS) ./test/release

# No part of .ci/run: a proxy may lack a module of the tool, and the database is not always reachable. The public workflow runs it.
NOT_CHECKED := "NOT CHECKED: known vulnerabilities were not looked for. This needs golang.org/x/vuln with its modules from the module proxy, and the database at https://vuln.go.dev; the workflow ci runs it where both can be reached."

.PHONY: vuln
vuln: ## Look for known vulnerabilities; needs the module proxy and vuln.go.dev, and says so where it cannot look
	@GOBIN=$(BIN) $(GO) install golang.org/x/vuln/cmd/govulncheck@v1.9.0 || { echo $(NOT_CHECKED); exit 2; }
	@$(BIN)/govulncheck -tags $(TAGS) ./... || { code=$$?; test $$code = 3 || { echo $(NOT_CHECKED); exit 2; }; exit $$code; }

# The folders of all modules; .github/dependabot.yml lists the same.
MODULES    = $(sort $(patsubst %/go.mod,%,$(shell find . -path ./bin -prune -o -path ./dist -prune -o -path './.?*' -prune -o -name go.mod -print)))

.PHONY: verify
verify: lint ## Lint, judge the workflows, and fail when generated files or module files are stale
	CGO_ENABLED=0 $(GO) test -trimpath -tags $(TAGS) ./build/generate
	CGO_ENABLED=0 $(GO) -C build/workflows test -count=1 -trimpath ./...
	$(GO) mod tidy -diff
	printf '%s\n' $(MODULES) | xargs -P 2 -I % sh -c '$(GO) -C % mod verify >/dev/null || { echo "Error: go mod verify in %"; exit 1; }'
	for file in $(notdir $(wildcard build/kubernetes/1.*.mod)); do $(GO) -C build/kubernetes mod verify -modfile=$$file >/dev/null || exit 1; done

.PHONY: clean
clean: ## Remove what was built here; the control plane in the user's cache folder stays
	rm -rf $(BIN) dist
