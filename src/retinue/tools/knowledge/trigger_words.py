"""The words that `trigger` goes by, in seven languages: closed classes of a grammar, names of things at work.

Data only. Question words, determiners and persons are closed classes: a language has a few dozen, and they do
not grow. What people work on (`things`) and what they have done (`work`) are open; a word that is missing
there makes one look-up too many. All languages are read at once, so nothing has to guess which one a question
is in.
"""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """`asking`: words a question or a request for knowledge begins with. `pointing`: determiners that say
    «the one we both know». `persons`: those who talk. `new`: what may have changed since. `looking`: names of
    what one looks up.
    """

    asking: str
    things: str
    work: str
    pointing: str
    persons: str
    new: str
    looking: str = ""


LANGUAGES = {
    "en": Words(
        asking="who whom whose what what's who's when's where's which when where why how is are was "
        "were does did has have will explain define describe research compare tell search list "
        "name",
        things="code project file files folder folders directory module modules package function "
        "functions method methods class classes script scripts test tests branch branches "
        "commit commits diff config configuration error errors bug bugs log logs document pdf "
        "spreadsheet workbook sheet table image text page conversation chat change changes app "
        "application server database schema variable variables parameter endpoint endpoints "
        "feature features import imports todo todos parser settings setting button line lines "
        "version build deployment pipeline dependency dependencies output screenshot "
        "environment port prompt task",
        work="fix implement refactor rename debug compile run write edit add delete remove create "
        "update commit format make change move build deploy install test review improve optimise "
        "optimize translate summarise summarize rewrite rephrase proofread shorten convert sort "
        "count draft",
        pointing="this these those our my your attached following above given",
        persons="you your we us our i me my",
        new="latest newest recent recently current currently today today's tonight yesterday nowadays "
        "news breaking",
        looking="definition meaning capital population history biography inventor author distance",
    ),
    "de": Words(
        asking="wer wen wem wessen was welche welcher welches welchen welchem wann wo woher wohin "
        "warum wieso weshalb wie wieviel wieviele ist sind war waren hat haben gibt gab wird "
        "erkläre erkläre erklär definiere beschreibe vergleiche nenne recherchiere suche liste",
        things="code projekt datei dateien ordner verzeichnis modul module paket funktion funktionen "
        "methode methoden klasse klassen skript skripte test tests branch zweig commit commits "
        "konfiguration fehler log logs dokument tabelle tabellen blatt bild text seite "
        "gespräch änderung änderungen anwendung server datenbank schema variable variablen "
        "parameter endpunkt einstellung einstellungen knopf zeile zeilen version ausgabe "
        "arbeitsmappe anhang aufgabe parser",
        work="behebe repariere implementiere refaktoriere benenne debugge kompiliere starte führe "
        "schreibe schreib bearbeite ergänze füge lösche entferne erstelle aktualisiere "
        "formatiere mache mach ändere verschiebe baue installiere teste prüfe verbessere "
        "optimiere übersetze übersetz fasse kürze wandle sortiere zähle entwirf",
        pointing="diese dieser dieses diesen diesem unser unsere unserer unserem unseren mein meine "
        "meiner meinem meinen dein deine deiner ihr angehängte angehängten folgende "
        "folgenden obige obigen",
        persons="du dich dir dein deine wir uns unser unsere ich mich mir mein meine",
        new="neueste neuesten neuester aktuell aktuelle aktueller aktuellen aktuelles derzeit heute gestern "
        "kürzlich nachrichten neuigkeiten",
        looking="hauptstadt einwohnerzahl bevölkerung geschichte definition bedeutung erfinder autor "
        "entfernung",
    ),
    "fr": Words(
        asking="qui que quoi quel quelle quels quelles quand où d'où pourquoi comment combien est "
        "est-ce qu'est-ce qu'est c'est sont était étaient a-t-il explique expliquez définis "
        "définissez décris décrivez compare comparez cite citez cherche recherche dis-moi "
        "parle-moi",
        things="code projet fichier fichiers dossier dossiers répertoire module modules paquet "
        "fonction fonctions méthode méthodes classe classes script scripts test tests branche "
        "branches commit commits configuration erreur erreurs bogue journal journaux document "
        "tableau tableaux feuille classeur image texte page conversation modification "
        "modifications application serveur base schéma variable variables paramètre réglage "
        "réglages bouton ligne lignes version sortie tâche analyseur",
        work="corrige corrigez répare implémente refactorise renomme débogue compile lance exécute "
        "écris écrivez rédige modifie ajoute ajoutez supprime supprimez crée créez mets formate "
        "fais change déplace construis déploie installe teste vérifie améliore optimise traduis "
        "traduisez résume résumez raccourcis convertis trie compte",
        pointing="ce cet cette ces notre nos mon ma mes ton ta tes votre vos ci-joint ci-jointe joint "
        "suivant suivante",
        persons="tu te toi ton ta tes vous votre nous notre nos je j'ai me moi mon ma mes puis-je",
        new="dernier dernière derniers dernières récent récente récents récemment actuel actuelle "
        "actuellement aujourd'hui hier actualités nouvelles",
        looking="capitale population histoire définition signification inventeur auteur distance",
    ),
    "es": Words(
        asking="quién quiénes quien qué que cuál cuáles cual cuándo cuando dónde donde adónde por "
        "cómo como cuánto cuánta cuántos cuántas cuantos es son era eran explica explique "
        "explícame define describe compara compare nombra busca investiga cuéntame háblame "
        "dime",
        things="código proyecto archivo archivos fichero ficheros carpeta carpetas directorio módulo "
        "módulos paquete función funciones método métodos clase clases script scripts prueba "
        "pruebas test tests rama ramas commit commits configuración error errores registro "
        "registros documento tabla tablas hoja libro imagen texto página conversación cambio "
        "cambios aplicación servidor base esquema variable variables parámetro ajuste ajustes "
        "botón línea líneas versión salida tarea analizador",
        work="arregla corrige repara implementa refactoriza renombra depura compila ejecuta escribe "
        "redacta edita añade agrega borra elimina crea actualiza formatea haz cambia mueve "
        "construye despliega instala prueba revisa mejora optimiza traduce resume acorta "
        "convierte ordena cuenta",
        pointing="este esta estos estas ese esa esos esas nuestro nuestra nuestros nuestras mi mis tu "
        "tus su sus adjunto adjunta siguiente",
        persons="tú tu tus te ti usted eres puedes nosotros nos nuestro nuestra yo me mí mi mis debo",
        new="último última últimos últimas reciente recientes recientemente actual actuales "
        "actualmente hoy ayer noticias",
        looking="capital población historia definición significado inventor autor distancia",
    ),
    "it": Words(
        asking="chi che cosa cos'è qual quale quali quando dove dov'è perché come com'è quanto quanta "
        "quanti quante è sono era erano spiega spiegami definisci descrivi confronta elenca "
        "cerca dimmi parlami",
        things="codice progetto file cartella cartelle directory modulo moduli pacchetto funzione "
        "funzioni metodo metodi classe classi script test ramo branch commit configurazione "
        "errore errori log documento tabella tabelle foglio immagine testo pagina "
        "conversazione modifica modifiche applicazione server database schema variabile "
        "variabili parametro impostazione impostazioni pulsante riga righe versione output "
        "compito",
        work="correggi ripara implementa rifattorizza rinomina compila esegui scrivi modifica "
        "aggiungi cancella elimina rimuovi crea aggiorna formatta fai cambia sposta costruisci "
        "installa testa controlla migliora ottimizza traduci riassumi accorcia converti ordina "
        "conta",
        pointing="questo questa questi queste quest' nostro nostra nostri nostre mio mia miei mie tuo "
        "tua allegato allegata seguente",
        persons="tu ti te tuo tua puoi sei noi ci nostro nostra io mi mio mia devo",
        new="ultimo ultima ultimi ultime recente recenti recentemente attuale attuali attualmente "
        "oggi ieri notizie",
        looking="capitale popolazione storia definizione significato inventore autore distanza",
    ),
    "pt": Words(
        asking="quem que quê qual quais quando onde porque porquê como quanto quanta quantos quantas "
        "é são era eram explique explica defina descreva compare liste diga-me fale-me",
        things="código projeto arquivo arquivos ficheiro ficheiros pasta pastas diretório módulo "
        "módulos pacote função funções método métodos classe classes script teste testes ramo "
        "branch commit configuração erro erros log documento tabela tabelas planilha folha "
        "imagem texto página conversa alteração alterações aplicação servidor esquema variável "
        "variáveis parâmetro botão linha linhas versão saída tarefa",
        work="corrija corrige conserte implemente refatore renomeie compile execute escreva edite "
        "adicione apague remova crie atualize formate faça mude mova instale teste revise "
        "melhore otimize traduza resuma encurte converta ordene conte",
        pointing="este esta estes estas esse essa esses essas nosso nossa nossos nossas meu minha "
        "meus minhas seu sua anexo seguinte",
        persons="tu você te teu tua nós nos nosso nossa eu me meu minha devo pode",
        new="último última recente recentes recentemente atual atuais atualmente hoje ontem notícias",
        looking="capital população história definição significado inventor autor distância",
    ),
    "ru": Words(
        asking="кто кого кому что чего какой какая какое какие когда где куда откуда почему зачем как "
        "сколько чей объясни опиши сравни назови найди расскажи определи",
        things="код кода коде проект проекта проекте файл файла файле файлы папка папке модуль "
        "функция функции метод класс скрипт тест тесты ветка ветке коммит коммите конфигурация "
        "ошибка ошибку лог документ таблица таблице лист текст страница разговор изменение "
        "сервер база схема переменная параметр настройки кнопка строка строке версия задача",
        work="исправь реализуй переименуй скомпилируй запусти напиши отредактируй добавь удали создай "
        "обнови сделай измени перемести собери установи проверь улучши переведи сократи "
        "отсортируй посчитай",
        pointing="этот эта это эти этом этой наш наша наше наши нашем нашей мой моя моё мои моём твой "
        "твоя приложенный",
        persons="ты тебя тебе твой вы вас мы нас наш я меня мне мой моя",
        new="последний последняя последние недавно сейчас сегодня вчера новости текущий нынешний",
        looking="столица население история определение значение изобретатель автор расстояние",
    ),
}
DEFINITE = "the der die das den dem des le la les l' du au aux el los las il lo gli i o os as del della al"
"""Articles that point as well, right before a thing or one word before it: «the branch», «the current
branch»."""
