<?php
// A shop with one script for all pages, as many of the 2010s are. A parameter chooses the
// page, errors have status 200, and a confirmation names no order: the session has it.
//
//   SHOP_DSN='mysql:host=127.0.0.1;dbname=shop' SHOP_USER=shop SHOP_PASSWORD=... \
//   PHP_CLI_SERVER_WORKERS=8 php -S 127.0.0.1:8080 index.php
//
// schema.sql has the tables. SHOP_LOG names a file that gets a line for each request.

ini_set('display_errors', 'stderr');

const SLOW_PROVIDER = 30000; // microseconds

function db(): PDO
{
    static $db;
    return $db ??= new PDO(getenv('SHOP_DSN'), getenv('SHOP_USER'), getenv('SHOP_PASSWORD'), [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
}

function query(string $sql, array $values = []): PDOStatement
{
    $statement = db()->prepare($sql);
    $statement->execute($values);
    return $statement;
}

function page(string $title, string $text = ''): void
{
    header('Content-Type: text/html; charset=utf-8');
    echo '<!DOCTYPE html><title>', htmlspecialchars($title), '</title><h1>', htmlspecialchars($title), '</h1><p>', htmlspecialchars($text), "</p>\n";
}

function json(array $values): void
{
    header('Content-Type: application/json');
    echo json_encode($values, JSON_THROW_ON_ERROR), "\n";
}

// session returns the customer's session, or null before the login.
function session(): ?array
{
    $id = $_COOKIE['SHOPSID'] ?? '';
    $row = is_string($id) ? query('SELECT * FROM shop_session WHERE session_id = ?', [$id])->fetch(PDO::FETCH_ASSOC) : false;
    return $row ?: null;
}

function order(mixed $id): ?array
{
    $row = query('SELECT * FROM shop_order WHERE order_id = ?', [(int) $id])->fetch(PDO::FETCH_ASSOC);
    return $row ?: null;
}

// confirm does what must happen once: it reads, waits for a provider, and writes.
function confirm(array $order): bool
{
    if ($order['status'] != 0) {
        return false;
    }
    usleep(SLOW_PROVIDER);
    query('INSERT INTO shop_order_history (order_id, status) VALUES (?, 1)', [$order['order_id']]);
    query('UPDATE shop_order SET status = 1 WHERE order_id = ?', [$order['order_id']]);
    query('UPDATE shop_stock SET quantity = quantity - 1');
    return true;
}

// One function for each page. The parameter is cleaned as such shops do it, so
// route=account/ord!er.info is a page, too.
$pages = [
    'common/home' => fn () => page('Welcome'),
    'account/login' => function (): void {
        $id = bin2hex(random_bytes(16));
        query('INSERT INTO shop_session (session_id) VALUES (?)', [$id]);
        setcookie('SHOPSID', $id, ['path' => '/', 'httponly' => true]);
        page('Logged in');
    },
    'account/order.info' => function (): void {
        $order = order($_GET['order_id'] ?? 0);
        page($order ? 'Order ' . $order['order_id'] : 'The order was not found', $order ? 'status ' . $order['status'] : '');
    },
    'checkout/confirm' => function (): void { // makes the order; the page does not name it
        $session = session();
        if (!$session) {
            header('Location: index.php?route=account/login', true, 302);
            return;
        }
        query('INSERT INTO shop_order (session_id) VALUES (?)', [$session['session_id']]);
        query('UPDATE shop_session SET order_id = ? WHERE session_id = ?', [db()->lastInsertId(), $session['session_id']]);
        page('Confirm your order');
    },
    'payment/cod.confirm' => function (): void { // confirms the session's order, which nothing names
        $session = session();
        $order = $session && $session['order_id'] ? order($session['order_id']) : null;
        if (!$order) {
            json(['error' => 'There is no order to confirm']);
            return;
        }
        echo "<b>Deprecated</b>: nl2br(): Passing null\n"; // such shops show PHP's notices before their JSON
        json(confirm($order) ? ['success' => 'index.php?route=checkout/success'] : ['error' => 'The order is confirmed']);
    },
    'api/order.history' => function (): void { // the back office confirms an order by its number
        $order = order($_POST['order_id'] ?? 0);
        if (!$order) {
            json(['error' => 'The order was not found']);
            return;
        }
        json(confirm($order) ? ['success' => 'The order is confirmed'] : ['error' => 'The order was confirmed before']);
    },
];

if ($log = getenv('SHOP_LOG')) {
    $target = preg_replace('/[^\x21-\x7e]/', '?', $_SERVER['REQUEST_URI']); // terminals obey other bytes
    file_put_contents($log, $_SERVER['REQUEST_METHOD'] . ' ' . $target . "\n", FILE_APPEND | LOCK_EX);
}
$route = $_GET['route'] ?? 'common/home';
$route = is_string($route) ? preg_replace('/[^a-zA-Z0-9_\/.]/', '', $route) : '';
($pages[$route] ?? fn () => page('The page was not found'))();
