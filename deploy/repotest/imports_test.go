package repotest

import (
	"slices"
	"strings"
	"testing"
)

// arrows says which packages of this module a package may import, in code that
// is not a test, and why not more. A package without a row fails: deciding
// where it stands is part of adding it.
var arrows = map[string]struct {
	may []string
	why string
}{
	"lua":                         {nil, "the scripts and their contracts can be read, linted and tested alone"},
	"limiter/series":              {nil, "all or none is a rule about metrics, whoever has them"},
	"limiter/fairq":               {nil, "whose turn it is, is a pure question: the caller has the lock, the clock and the bounds"},
	"limiter/quota":               {nil, "what a provider says of its quota is data: it can be read, and fuzzed, without anybody to ask"},
	"limiter/throttle":            {[]string{"limiter/quota"}, "pace is a pure question: the caller has the lock, the clock and the fleet"},
	"limiter/pace":                {[]string{"limiter/fairq", "limiter/throttle", "limiter/quota", "fleet", "limiter/series"}, "who waits for a provider is a question of locks and gossip, not of HTTP"},
	"fleet":                       {nil, "estimates are pure functions of a view, so that they can be simulated"},
	"fleet/gossip":                {[]string{"fleet", "limiter/series"}, "gossip carries digests and knows nothing of limits: it advises, Redis decides"},
	"fleet/simnet":                {nil, "a network knows nothing of what it carries"},
	"limiter":                     {[]string{"limiter/fairq", "fleet", "limiter/series"}, "one admission question without HTTP and without Redis: both are behind its interfaces"},
	"limiter/redisstore":          {[]string{"limiter", "lua", "limiter/series"}, "a store knows the vocabulary and the scripts, not who asks"},
	"limiter/localshare":          {[]string{"limiter", "limiter/series"}, "a share decides by the vocabulary alone; the store behind it is one of many"},
	"limiter/near":                {[]string{"limiter", "limiter/series"}, "what may be decided without a store is a rule about every store"},
	"limiter/memstore":            {[]string{"limiter"}, "the scripts' twin must not share code with what it checks"},
	"limiter/storetest":           {[]string{"limiter"}, "a conformance suite knows the contract, not the implementations"},
	"limiter/storetest/redisproc": {nil, "it starts redis-server processes and knows nothing of what is kept there"},
	"gateway/agents":              {[]string{"limiter", "limiter/fairq", "fleet", "limiter/series"}, "who has an agent's slot is a question to the store and the local order, not of HTTP"},
	"gateway":                     {[]string{"gateway/agents", "limiter", "limiter/pace", "limiter/quota", "limiter/throttle", "fleet", "gateway/config", "gateway/console", "gateway/cost", "gateway/workspace", "limiter/series"}, "the edge speaks HTTP and asks the limiter; what it runs on is replica's choice"},
	"gateway/workspace":           {[]string{"gateway/config", "limiter", "lua"}, "what holds in a workspace is a document, not a question of HTTP; the store behind it is an interface"},
	"gateway/console":             {nil, "what people are shown is data and files; who fills and who serves them is known elsewhere"},
	"gateway/cost":                {nil, "what a request will cost is a question about its text and its model, not about limits or HTTP"},
	"gateway/certtest":            {nil, "it makes files, and knows nothing of who reads them"},
	"gateway/config":              {[]string{"limiter"}, "a configuration is data: it can be checked where nothing can be started"},
	"gateway/rls": {[]string{"gateway", "gateway/config", "limiter"},
		"another edge of the same limiter; it words waits and levels as the gateway does"},
	"gateway/batch": {[]string{"gateway", "gateway/config", "gateway/workspace", "limiter", "lua", "limiter/series"},
		"another edge, whose jobs run through the gateway; what keeps them is behind one method"},
	"gateway/replica": {[]string{"gateway", "gateway/agents", "gateway/batch", "gateway/config", "gateway/console", "gateway/cost", "gateway/rls", "gateway/workspace", "limiter", "limiter/localshare", "limiter/near", "limiter/redisstore", "fleet", "fleet/gossip", "limiter/series"},
		"the one place where all parts of a replica meet"},
	"bench":              {[]string{"limiter"}, "the judge must not trust the gateway it judges"},
	"bench/stage":        {[]string{"bench", "gateway/config", "gateway/replica"}, "it starts the fleets that bench judges"},
	"cmd/headway":        {[]string{"gateway", "gateway/config", "gateway/console", "gateway/cost", "gateway/replica", "bench", "limiter", "fleet"}, "wiring only"},
	"cmd/headway-bench":  {[]string{"bench", "bench/stage"}, "wiring only"},
	"deploy/repotest":    {nil, "only tests"},
	"deploy/fleettest":   {nil, "only tests"},
	"deploy/examples":    {nil, "only tests"},
	"deploy/consoletest": {nil, "only tests"},
}

// dependencies says where a module that is not ours may be imported, and why
// it is worth having. A path ending in "..." covers what is below it.
var dependencies = map[string]struct {
	only  []string // in code that is not a test
	tests []string // in tests besides
	why   string
}{
	"github.com/redis/rueidis": {[]string{"limiter/redisstore"}, []string{"limiter/...", "bench/...", "deploy/fleettest"},
		"its traps (it ignores contexts when full, retries by itself, panics across slots) are fenced in one facade"},
	"github.com/hashicorp/memberlist": {[]string{"fleet/gossip", "fleet/simnet"}, nil,
		"membership is advice; the rest must work without"},
	"github.com/labstack/echo/v4": {[]string{"gateway"}, nil,
		"the router is to be replaced by its next version in one small change"},
	"github.com/alicebob/miniredis/v2": {[]string{"gateway/replica", "limiter/storetest/..."}, []string{"..."},
		"the embedded store is for trying out and for tests"},
	"github.com/prometheus/client_golang": {[]string{"limiter", "limiter/localshare", "limiter/near", "limiter/pace", "limiter/redisstore", "limiter/series", "fleet/gossip", "gateway", "gateway/agents", "gateway/batch", "gateway/rls", "gateway/replica"}, []string{"..."},
		"each package owns its numbers; the judge and pure packages have none"},
	"github.com/dunglas/httpsfv": {[]string{"gateway", "limiter/quota"}, nil,
		"headers belong to the edge, and to the reader of providers' headers"},
	"github.com/tiktoken-go/tokenizer": {[]string{"gateway/cost"}, nil,
		"one estimator counts tokens"},
	"github.com/coder/websocket": {[]string{"gateway"}, []string{"gateway/...", "deploy/fleettest"},
		"realtime sessions are one endpoint of the edge"},
	"go.yaml.in/yaml/v3": {[]string{"gateway/config"}, nil,
		"one loader reads files, strictly"},
	"google.golang.org/grpc": {[]string{"gateway/rls"}, []string{"gateway/...", "deploy/fleettest"},
		"one edge speaks it"},
	"google.golang.org/protobuf": {[]string{"gateway/rls"}, []string{"gateway/...", "deploy/fleettest"},
		"the wrappers of Envoy's API"},
	"github.com/envoyproxy/go-control-plane/envoy": {[]string{"gateway/rls"}, []string{"gateway/...", "deploy/fleettest"},
		"one edge speaks Envoy's API"},
	"github.com/spf13/cobra": {[]string{"cmd/..."}, nil,
		"flags are for programs"},
	"github.com/spf13/pflag": {[]string{"cmd/..."}, nil,
		"cobra's flag types, for what is written like a list"},
	"golang.org/x/term": {[]string{"cmd/..."}, nil,
		"only programs ask whether they talk to a person"},
	"github.com/chromedp/chromedp": {nil, []string{"deploy/consoletest"},
		"only a browser shows what people see"},
	"github.com/chromedp/cdproto": {nil, []string{"deploy/consoletest"},
		"the browser's protocol, as chromedp has it"},
	"github.com/HdrHistogram/hdrhistogram-go": {[]string{"bench"}, nil,
		"waits are measured where they are judged"},
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, p := range listPackages(t) {
		row, ok := arrows[p.ImportPath]
		if !ok {
			t.Errorf("%s has no row in arrows: say what it may import, and why", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			own, ok := strings.CutPrefix(imported, modulePath+"/")
			if ok && !slices.Contains(row.may, own) {
				t.Errorf("%s imports %s: %s", p.ImportPath, own, row.why)
			}
		}
	}
	for name := range arrows {
		if !slices.ContainsFunc(listPackages(t), func(p goPackage) bool { return p.ImportPath == name }) {
			t.Errorf("arrows has a row for %s, which does not exist", name)
		}
	}
}

func TestDependenciesStayWhereTheyAreWorthIt(t *testing.T) {
	used := map[string]bool{}
	check := func(p goPackage, imported string, test bool) {
		if !strings.Contains(strings.Split(imported, "/")[0], ".") || strings.HasPrefix(imported, modulePath) {
			return // the standard library, or our own
		}
		module := moduleOf(imported)
		row, ok := dependencies[module]
		if !ok {
			t.Errorf("%s imports %s, which has no row in dependencies: say where it belongs, and why", p.ImportPath, imported)
			return
		}
		used[module] = true
		if !covers(row.only, p.ImportPath) && !(test && covers(row.tests, p.ImportPath)) {
			t.Errorf("%s imports %s, allowed in %v: %s", p.ImportPath, imported, row.only, row.why)
		}
	}
	for _, p := range listPackages(t) {
		for _, i := range p.Imports {
			check(p, i, false)
		}
		for _, i := range slices.Concat(p.TestImports, p.XTestImports) {
			check(p, i, true)
		}
	}
	readme := readFile(t, "README.md")
	for module := range dependencies {
		if !used[module] {
			t.Errorf("dependencies has a row for %s, which nothing imports", module)
		}
		if !strings.Contains(readme, "`"+module+"`") {
			t.Errorf("the dependency table of README.md lacks `%s`", module)
		}
	}
}

// moduleOf finds the row that an import belongs to.
func moduleOf(imported string) string {
	for module := range dependencies {
		if imported == module || strings.HasPrefix(imported, module+"/") {
			return module
		}
	}
	return imported
}

func covers(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, open := strings.CutSuffix(p, "...")
		return p == pkg || open && (strings.HasPrefix(pkg, prefix) || pkg+"/" == prefix)
	})
}

// pure lists the packages that start no goroutine and read no clock: time is
// an argument, and the caller holds the lock.
var pure = []string{"lua", "limiter/fairq", "limiter/quota", "limiter/throttle", "fleet"}

// clockReaders are the exceptions, by file.
var clockReaders = map[string]string{
	"fleet/view.go": "Alone stands in for a gossip node, and its view is always of now",
}

// pureModules are libraries that are pure themselves.
var pureModules = map[string]string{
	"github.com/dunglas/httpsfv": "a parser",
}

func TestPurePackagesStayPure(t *testing.T) {
	for _, f := range parsedFiles(t) {
		if f.isTest() || !slices.Contains(pure, f.dir()) {
			continue
		}
		if clockReaders[f.path] == "" {
			for _, at := range impurities(f.syntax) {
				t.Errorf("%v: %s", fset.Position(at.pos), at.what)
			}
		}
		for _, i := range f.syntax.Imports {
			name := strings.Trim(i.Path.Value, `"`)
			own, ours := strings.CutPrefix(name, modulePath+"/")
			if strings.Contains(strings.Split(name, "/")[0], ".") && pureModules[name] == "" && !(ours && slices.Contains(pure, own)) {
				t.Errorf("%s imports %s: pure packages need nothing but the standard library and one another", f.path, name)
			}
		}
	}
}
