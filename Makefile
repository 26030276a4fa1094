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
# The same with a line of progress every few seconds. The tool is built like the demo where its tools are at hand (build/gobuild, Quick).
TOOL      := CGO_ENABLED=0 $(GO) run -trimpath "-gcflags=all=-l -dwarf=false -c=1" "-gcflags=runtime=-l -dwarf=false" "-gcflags=github.com/anyccm/...=-l -dwarf=false" ./build/tool
comma     := ,
space     := $(subst ,, )

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Names that are no provider's end a build at once, with the names that are.
NAMED      = $(sort $(filter-out kit,$(patsubst providers/%/,%,$(wildcard providers/*/))))
check-names = $(if $(filter-out $(NAMED),$(1)),$(error there is no provider $(filter-out $(NAMED),$(1)); there are $(NAMED)))

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

# Tests. TESTFLAGS are added to every `go test` of this module, and of images. Those that start programs, render the chart or read files
# outside of their module have -count=1, for go does not see that these have changed and would answer from its cache.
# They do without go's vet, which reads every SDK for it, once with the race detector and once without: make verify has vet's checks.
TESTFLAGS ?=
GOTEST    := $(GO) test -vet=off -trimpath -tags $(TAGS) -timeout 60m $(TESTFLAGS)
# The race detector needs a C compiler, which Go alone does not.
CC_FOUND   = $(shell set -- $$($(GO) env CC); command -v "$$1")

# CLOUDS are the clouds whose own tests run: all, none, or names. RACE are those among them whose tests run with the race detector.
# .ci/run sets both to what a change concerns; everywhere else nothing is left out. docs/developing.md says why this is safe.
CLOUDS    ?= all
RACE      ?= all
# INTERRUPTIONS is one in how many cases of the largest parts of a cloud's tests the race detector tries; all are tried without it then.
# Empty, it tries all of them, for some hours: make test-all. SAMPLE is the same for clouds that RACE does not name, where only shared
# code changed.
INTERRUPTIONS ?= 16
SAMPLE    ?=
EVERY      = $(filter-out kit,$(patsubst providers/%/,%,$(wildcard providers/*/)))
CHOSEN     = $(if $(filter all,$(CLOUDS)),$(EVERY),$(filter-out none,$(CLOUDS)))
CHANGED    = $(if $(filter all,$(RACE)),$(CHOSEN),$(filter $(RACE),$(CHOSEN)))
RACED      = $(if $(CC_FOUND),$(CHANGED))
SAMPLED    = $(filter-out $(CHANGED),$(CHOSEN))
# What is tried without the race detector and in full: also what the race detector tried in part, or could not try at all.
WHOLE      = $(if $(INTERRUPTIONS),$(CHANGED),$(filter-out $(RACED),$(CHANGED)))
# The shared code runs with the race detector, but for what links every cloud: compiling all SDKs once more shows no race of ours.
SHARED     = ./registry/... ./providers/kit/... ./cmd/cloud-controller-manager/app/... ./cmd/cloudsim/... ./build/... \
	./test/controlplane/... ./test/harness ./test/realclouds/... ./test/vrrp
LINKING    = ./build/generate ./build/size ./test/bench ./test/expectations ./test/scenarios ./registry/linked
# What computes runs beside what waits for clusters, so that neither leaves the cores idle.
.PHONY: test
test: tools-for-tests ## Run all tests; CLOUDS="a b" runs the tests of these clouds and the shared ones alone
	@$(MAKE) --no-print-directory -j3 test-packages test-e2e test-acceptance || { echo "Error: tests failed; look for FAIL above"; exit 1; }

.PHONY: test-packages
test-packages: ## All tests but those against a kube-apiserver
	@$(MAKE) --no-print-directory test-unit
	@$(MAKE) --no-print-directory test-build
	@$(MAKE) --no-print-directory test-chart
	@$(MAKE) --no-print-directory test-image

.PHONY: test-all
test-all: ## Everything that .ci/run can check, with nothing left out
	.ci/run --all

# Compilers and tests that collect their garbage less often are done an eighth sooner, with a third more memory.
.PHONY: test-unit
test-unit: ## Unit, conformance and interruption tests, with the race detector where there is a C compiler
	$(if $(CC_FOUND),,@echo "No C compiler here: these tests run without the race detector.")
	packages=$$($(GO) list -tags $(TAGS) $(SHARED)) || exit 1; \
	packages=$$(echo "$$packages" | grep -vxF $(LINKING:./%=-e $(MODULE_PATH)/%)) || exit 1; \
	ANYCCM_INTERRUPTIONS=$(INTERRUPTIONS) GOGC=$(or $(GOGC),400) CGO_ENABLED=$(if $(CC_FOUND),1,0) \
		$(GOTEST) $(if $(CC_FOUND),-race) $$packages $(RACED:%=./providers/%/...)
	GOGC=$(or $(GOGC),400) CGO_ENABLED=0 $(GOTEST) $(LINKING) $(WHOLE:%=./providers/%/...)
	$(if $(SAMPLED),ANYCCM_INTERRUPTIONS=$(SAMPLE) GOGC=$(or $(GOGC),400) CGO_ENABLED=0 $(GOTEST) $(SAMPLED:%=./providers/%/...))

.PHONY: test-build
test-build: ## Slim builds of every provider, a provider in a module of its own, size and linking of the program
	@echo "The tests build images without the internet: their modules are downloaded first"
	$(GO) -C build/image mod download
	ANYCCM_CLOUDS="$(CLOUDS)" CGO_ENABLED=0 $(GOTEST) -count=1 ./cmd/cloud-controller-manager ./test/othermodule
	CGO_ENABLED=0 $(GO) -C build/goreleaser test -count=1 -trimpath -timeout 60m ./...
	@echo "What cannot run with the race detector, for the framework itself has a race"
	CGO_ENABLED=0 $(GOTEST) -count=1 -run '^(TestRelist|TestTheStandInIsTheNodes|TestANodeThatJoins)$$' ./cmd/cloud-controller-manager/app

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

.PHONY: test-image
test-image: build ## The image is the same each time, and its program runs from the unpacked layout
	ANYCCM_BIN=$(BIN) CGO_ENABLED=0 $(GO) -C build/image test -count=1 -trimpath -timeout 20m $(TESTFLAGS) ./...

.PHONY: test-chart
test-chart: $(BIN)/helm ## What the Helm chart renders, for each Kubernetes minor version; TESTFLAGS=-update updates the snapshots
	ANYCCM_BIN=$(BIN) CGO_ENABLED=0 $(GO) test -count=1 -trimpath -tags $(TAGS) -timeout 20m ./test/chart $(TESTFLAGS)
	CGO_ENABLED=0 $(GO) -C build/prometheus test -trimpath -tags $(TAGS) -timeout 60m ./...
	CGO_ENABLED=0 $(GO) -C build/kubernetes test -trimpath -timeout 60m ./...
	CGO_ENABLED=0 $(GO) -C build/kubeadm test -count=1 -trimpath -tags $(TAGS) -timeout 60m ./...
	for module in 1.34.mod 1.35.mod 1.36.mod go.mod; do \
		echo "Kubernetes types of $$(awk '$$1 == "k8s.io/api" {print $$2}' build/kubernetes/$$module)"; \
		CGO_ENABLED=0 $(GO) run -C build/kubernetes -trimpath -modfile=$$module . $(CURDIR)/test/chart/testdata/*/rendered.yaml $(CURDIR)/providers/*/testdata/chart/*/rendered.yaml || exit 1; \
	done

E2E        = ANYCCM_CLOUDS="$(CLOUDS)" ANYCCM_BIN=$(BIN) CGO_ENABLED=0 $(GOTEST) -count=1 -timeout 2h -parallel 10 -v ./test/e2e
# The acceptance suite has waits of its own, whose time is a part of what it reports, and so runs fewer clusters at a time.
SUITE      = ANYCCM_CLOUDS="$(CLOUDS)" ANYCCM_BIN=$(BIN) CGO_ENABLED=0 $(GOTEST) -count=1 -timeout 2h -parallel 4 -v ./test/acceptance

.PHONY: test-e2e
test-e2e: tools-for-tests ## The built program against a real kube-apiserver and simulated clouds
	$(E2E)

.PHONY: test-acceptance
test-acceptance: tools-for-tests ## The acceptance suite against the built program and simulated clouds
	$(SUITE)

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
	assets=$$($(ENVTEST) use $(OLDEST).x -p path) && export KUBEBUILDER_ASSETS=$$assets && $(E2E)

SOAK      ?= 3m
SEED      ?=

.PHONY: soak
soak: tools-for-tests ## Random schedules, then a random run of the built program: SOAK=3m SEED=1
	CGO_ENABLED=0 SOAK_SCHEDULES=200 $(GOTEST) -parallel 10 -run TestSchedules ./providers/...
	ANYCCM_BIN=$(BIN) $(GO) run -trimpath -tags $(TAGS) ./test/soak -duration=$(SOAK) $(if $(SEED),-seed=$(SEED)) -provider=$(PROVIDER)

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
