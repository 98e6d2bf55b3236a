<?php
// Order service with a front controller, as old ones are written: it looks for
// the order in every way that such services do, and records each way that finds
// one, as one JSON line, in $SIGHTINGS. $BACKEND is its name there.

// From the environment, or from the web server's configuration.
function setting(string $name): string
{
    return getenv($name) ?: $_SERVER[$name] ?? '';
}

function see(bool $settle, mixed $raw, string $via): void
{
    $order = is_array($raw) ? (int) reset($raw) : (int) $raw;
    if ($order < 1) {
        return; // no such order
    }
    $line = json_encode([
        'case' => $_SERVER['HTTP_X_CASE'] ?? '', 'backend' => setting('BACKEND'),
        'what' => $settle ? 'settle' : 'lookup', 'order' => (string) $order,
        'key' => $_SERVER['HTTP_X_ORDERGATE_KEY'] ?? '', 'via' => $via,
    ], JSON_INVALID_UTF8_SUBSTITUTE);
    file_put_contents(setting('SIGHTINGS'), $line . "\n", FILE_APPEND | LOCK_EX);
}

// A path, with whatever the web server has or has not undone of it. With
// $PREFIX a route is one whatever follows, as it is to a pattern without an end.
function by_path(string $path, string $via, string $script = ''): void
{
    $path = rawurldecode(strtok($path, '?') ?: '');
    $end = setting('PREFIX') ? '' : '/*$';
    if (preg_match("#^$script/+orders/+([^/]+)(/+settle)?$end#i", $path, $m)) {
        see(isset($m[2]), $m[1], $via);
        if (isset($_REQUEST['id'])) {
            see(isset($m[2]), $_REQUEST['id'], "$via, \$_REQUEST");
        }
    }
    if (preg_match("#^$script/+(query|form|json|header|cookie)/+(settle|order)$end#i", $path, $m)) {
        by_place(strtolower($m[1]), strtolower($m[2]) === 'settle', $via);
    }
}

function by_place(string $place, bool $settle, string $via): void
{
    switch ($place) {
        case 'query':
            see($settle, $_GET['orderId'] ?? '', "$via, \$_GET");
            see($settle, $_REQUEST['orderId'] ?? '', "$via, \$_REQUEST");
            break;
        case 'form':
            see($settle, $_POST['orderId'] ?? '', "$via, \$_POST");
            see($settle, $_REQUEST['orderId'] ?? '', "$via, \$_REQUEST");
            break;
        case 'json':
            $in = json_decode(file_get_contents('php://input'), true);
            see($settle, is_array($in) ? $in['orderId'] ?? '' : '', "$via, json_decode");
            if (is_array($in) && is_scalar($in['orderId'] ?? null)) { // narrowed, as a column or a double does
                see($settle, unpack('l', pack('l', (int) $in['orderId']))[1], "$via, 32 bits");
                see($settle, (int) (float) $in['orderId'], "$via, double");
            }
            if (!is_array($in)) { // it takes forms too, then
                see($settle, $_REQUEST['orderId'] ?? '', "$via, \$_REQUEST for JSON");
            }
            break;
        case 'header':
            see($settle, $_SERVER['HTTP_X_ORDER_ID'] ?? '', "$via, \$_SERVER");
            break;
        case 'cookie':
            see($settle, $_COOKIE['orderId'] ?? '', "$via, \$_COOKIE");
            break;
    }
}

require __DIR__ . '/../front/templates.php';
$decoded = rawurldecode(strtok($_SERVER['REQUEST_URI'], '?') ?: '');
by_template(preg_replace('#^/+index\.php(?=/)#', '', $decoded), 'REQUEST_URI');
by_template($_SERVER['PATH_INFO'] ?? '', 'PATH_INFO');
by_path($_SERVER['REQUEST_URI'], 'REQUEST_URI', '(?:/+index\.php)?');
by_path($_SERVER['PATH_INFO'] ?? '', 'PATH_INFO');
foreach (['HTTP_X_ORIGINAL_URL', 'HTTP_X_REWRITE_URL'] as $header) {
    if (isset($_SERVER[$header])) {
        by_path($_SERVER[$header], $header);
    }
}
if (in_array(strtok($_SERVER['REQUEST_URI'], '?'), ['/', '/index.php'])) {
    $action = strtolower((string) ($_REQUEST['action'] ?? ''));
    if (in_array($action, ['settle', 'show'])) {
        see($action === 'settle', $_REQUEST['id'] ?? '', 'action');
    }
    by_path('/' . ltrim((string) ($_REQUEST['route'] ?? ''), '/'), 'route');
}
if (isset($_SERVER['REWRITTEN_ID'])) { // by the web server
    see($_SERVER['REWRITTEN_ACTION'] === 'settle', $_SERVER['REWRITTEN_ID'], 'rewrite');
}
echo "done\n";
